/// \file
/// The TableUnpacker of the process: calls headrace.data.tables, which calls pyarrow (or lance).
///
/// Threads: called from engine threads; takes the GIL for the call. pyarrow gives it up while it
/// unpacks.
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

/// The Status of an exception: headrace.data.tables raises ours; Ctrl-C comes while it runs on the
/// main thread; anything else is a bug there.
Status status_of(nb::python_error& error) {
  if (error.matches(PyExc_KeyboardInterrupt)) {
    PyErr_SetInterrupt();  // Whoever waits for the table raises it (check_signals).
    return Status(Code::kCancelled, "unpacking a table: interrupted");
  }
  const nb::object value = nb::borrow(error.value());
  std::string text = nb::cast<std::string>(nb::str(value));
  const nb::object code = nb::getattr(value, "code", nb::none());
  if (nb::isinstance<nb::str>(code)) return Status(code_of(nb::cast<std::string>(code)), text);
  const std::string type = nb::cast<std::string>(nb::str(error.type().attr("__name__")));
  return Status(Code::kInternal, type + ": " + text);
}

class PyTableUnpacker final : public TableUnpacker {
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

  Status unpack(const TableRequest& request, TableSink& sink) override {
    // Of the result only the error matters.
    auto done = call<bool>([&](nb::handle module) -> Result<bool> {
      LentMemory head(request.head), body(request.body);
      Status status;
      {
        const nb::object batches =
            module.attr("unpack")(nb::str(request.kind.data(), request.kind.size()),
                                  nb::bytes(request.spec.data(), request.spec.size()), head.view(),
                                  body.view(), request.unpacked_bytes, request.most_rows);
        while (status.ok()) {
          const nb::object next = batches.attr("next")();
          if (next.is_none()) break;
          status = hand_over(next, sink);
        }
        batches.attr("close")();
      }
      head.close();
      body.close();
      if (!status.ok()) return status;
      return true;
    });
    return done ? Status() : std::move(done).error();
  }

 private:
  /// `next`: (first column, capsule "arrow_schema", capsule "arrow_array"), which free what they
  /// hold.
  static Status hand_over(const nb::object& next, TableSink& sink) {
    const auto first = nb::cast<std::size_t>(next[0]);
    const nb::object schema_capsule = next[1], array_capsule = next[2];
    const auto* schema =
        static_cast<ArrowSchema*>(PyCapsule_GetPointer(schema_capsule.ptr(), "arrow_schema"));
    const auto* array =
        static_cast<ArrowArray*>(PyCapsule_GetPointer(array_capsule.ptr(), "arrow_array"));
    if (schema == nullptr || array == nullptr) throw nb::python_error();
    const nb::gil_scoped_release release;
    return sink.take(first, *schema, *array);
  }

  template <class T, class Work>
  static Result<T> call(const Work& work) {
    // A thread that asks for the GIL while the interpreter goes may never come back.
    if (is_left_behind_by_exit()) return Status(Code::kCancelled, "Python is exiting");
    const nb::gil_scoped_acquire acquire;
    try {
      return Result<T>(work(nb::module_::import_("headrace.data.tables")));
    } catch (nb::python_error& error) {
      return status_of(error);
    } catch (const std::exception& error) {  // nanobind: an answer of another type.
      return Status(Code::kInternal, error.what());
    }
  }
};

}  // namespace

void bind_table(nb::module_&) { set_table_unpacker(std::make_shared<PyTableUnpacker>()); }

}  // namespace headrace
