#include "headrace/inflate.h"

#include <string>

#include "buffers.h"
#include "errors.h"

namespace headrace {
namespace {

nb::bytes inflate_buffer(const std::string& compression, nb::handle data, std::size_t raw_bytes) {
  const BufferArgument stored(data);
  nb::object raw =
      nb::steal(PyBytes_FromStringAndSize(nullptr, static_cast<Py_ssize_t>(raw_bytes)));
  if (!raw.is_valid()) throw nb::python_error();
  auto* const begin = reinterpret_cast<std::byte*>(PyBytes_AsString(raw.ptr()));
  const Status status = [&] {
    const nb::gil_scoped_release no_gil;
    return inflate(compression, stored.bytes(), {begin, raw_bytes});
  }();
  if (!status.ok()) raise(status);
  return nb::cast<nb::bytes>(raw);
}

}  // namespace

void bind_inflate(nb::module_& m) {
  m.def("inflate", &inflate_buffer, nb::arg("compression"), nb::arg("data"), nb::arg("raw_bytes"));
}

}  // namespace headrace
