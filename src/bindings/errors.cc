#include "errors.h"

#include <exception>
#include <string>
#include <system_error>

#include "process.h"
#include "text.h"

namespace headrace {
namespace {

/// Name of the class in headrace/errors.py, in the order of Code.
constexpr const char* kClassNames[] = {
    "HeadraceError",  "CancelledError", "DeadlineError", "InvalidArgumentError",
    "NotFoundError",  "DeniedError",    "ChangedError",  "UnavailableError",
    "ThrottledError", "ExhaustedError", "CorruptError",  "UnsupportedError",
    "InternalError"};
static_assert(std::size(kClassNames) == static_cast<std::size_t>(Code::kInternal) + 1);

}  // namespace

nb::object make_error(const Status& status, std::string_view key) {
  const char* class_name = kClassNames[static_cast<std::size_t>(status.code())];
  nb::object type = nb::module_::import_("headrace.errors").attr(class_name);
  nb::object error = type(readable_text(status.message()));
  if (!key.empty()) error.attr("key") = nb::cast(key);
  return error;
}

void raise(const Status& status, std::string_view key) {
  raise(status, key.empty() ? nb::object(nb::none()) : nb::object(nb::cast(key)));
}

void raise(const Status& status, const nb::object& key) {
  if (is_left_behind_by_exit()) {
    PyErr_SetNone(PyExc_SystemExit);
    throw nb::python_error();
  }
  const nb::object error = make_error(status);
  error.attr("key") = key;
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(error.ptr())), error.ptr());
  throw nb::python_error();
}

/// A thread that the system refuses is an error like another.
void bind_errors(nb::module_&) {
  nb::register_exception_translator([](const std::exception_ptr& raised, void*) {
    try {
      std::rethrow_exception(raised);
    } catch (const std::system_error& error) {
      if (error.code() != std::errc::resource_unavailable_try_again) throw;
      const nb::object made = make_error(
          Status(Code::kExhausted, std::string("the system refuses a thread: ") + error.what() +
                                       "; raise the limit of processes (ulimit -u, or the "
                                       "container's pids)"));
      PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(made.ptr())), made.ptr());
    }
  });
}

}  // namespace headrace
