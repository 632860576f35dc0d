/// \file
/// The TableDecoder of the process: calls headrace._tables, which calls pyarrow (or lance).
///
/// Threads: called from engine threads; takes the GIL for the call. pyarrow gives it up while it
/// decodes.
#include "headrace/table.h"

#include "bind.h"
#include "errors.h"
#include "process.h"

namespace headrace {
namespace {

/// A memoryview over engine memory for the time of one call. What keeps a view of it longer is
/// found out: close() then fails.
class LentMemory {
 public:
  explicit LentMemory(std::span<const std::byte> bytes) {
    // Python wants an address even for no bytes, and never writes through a read-only view.
    static char nothing = 0;
    char* data =
        bytes.empty() ? &nothing : const_cast<char*>(reinterpret_cast<const char*>(bytes.data()));
    view_ =
        nb::steal(PyMemoryView_FromMemory(data, static_cast<Py_ssize_t>(bytes.size()), PyBUF_READ));
    if (!view_.is_valid()) throw nb::python_error();
  }
  const nb::object& view() const noexcept { return view_; }
  /// Raises BufferError when something still refers to the memory.
  void close() { view_.attr("release")(); }

 private:
  nb::object view_;
};

Code code_of(std::string_view name) {
  for (int c = 1; c <= static_cast<int>(Code::kInternal); ++c) {
    if (code_name(static_cast<Code>(c)) == name) return static_cast<Code>(c);
  }
  return Code::kInternal;
}

/// The Status of an exception: headrace._tables raises ours; Ctrl-C comes while it runs on the main
/// thread; anything else is a bug there.
Status status_of(nb::python_error& error) {
  if (error.matches(PyExc_KeyboardInterrupt)) {
    PyErr_SetInterrupt();  // Whoever waits for the table raises it (check_signals).
    return Status(Code::kCancelled, "decoding a table: interrupted");
  }
  const nb::object value = nb::borrow(error.value());
  std::string text = nb::cast<std::string>(nb::str(value));
  const nb::object code = nb::getattr(value, "code", nb::none());
  if (nb::isinstance<nb::str>(code)) return Status(code_of(nb::cast<std::string>(code)), text);
  const std::string type = nb::cast<std::string>(nb::str(error.type().attr("__name__")));
  return Status(Code::kInternal, type + ": " + text);
}

class PyTableDecoder final : public TableDecoder {
 public:
  Result<std::string> describe(const TableRequest& request) override {
    return call<std::string>([&](nb::handle module) {
      LentMemory head(request.head), body(request.body);
      std::string answer = nb::cast<std::string>(module.attr("describe")(
          nb::str(request.kind.data(), request.kind.size()),
          nb::str(request.spec.data(), request.spec.size()), head.view(), body.view()));
      head.close();
      body.close();
      return answer;
    });
  }

  Result<ArrowOwned<ArrowArrayStream>> decode(const TableRequest& request) override {
    return call<ArrowOwned<ArrowArrayStream>>([&](nb::handle module) {
      LentMemory head(request.head), body(request.body);
      const nb::object capsule = module.attr("decode")(
          nb::str(request.kind.data(), request.kind.size()),
          nb::bytes(request.spec.data(), request.spec.size()), head.view(), body.view());
      auto* exported =
          static_cast<ArrowArrayStream*>(PyCapsule_GetPointer(capsule.ptr(), "arrow_array_stream"));
      if (exported == nullptr) throw nb::python_error();
      ArrowOwned<ArrowArrayStream> stream;
      *stream.out() = *exported;
      exported->release = nullptr;  // Moved, as the specification has it.
      head.close();
      body.close();
      return stream;
    });
  }

 private:
  template <class T, class Work>
  static Result<T> call(const Work& work) {
    // A thread that asks for the GIL while the interpreter goes may never come back.
    if (is_left_behind_by_exit()) return Status(Code::kCancelled, "Python is exiting");
    const nb::gil_scoped_acquire acquire;
    try {
      return Result<T>(work(nb::module_::import_("headrace._tables")));
    } catch (nb::python_error& error) {
      return status_of(error);
    } catch (const std::exception& error) {  // nanobind: an answer of another type.
      return Status(Code::kInternal, error.what());
    }
  }
};

}  // namespace

void bind_table(nb::module_&) { set_table_decoder(std::make_shared<PyTableDecoder>()); }

}  // namespace headrace
