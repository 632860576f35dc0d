#include "buffers.h"

namespace headrace {
namespace {

int get_buffer(PyObject* self, Py_buffer* view, int flags) {
  const auto bytes = nb::inst_ptr<SlabBuffer>(self)->bytes();
  return PyBuffer_FillInfo(view, self, bytes.data(), static_cast<Py_ssize_t>(bytes.size()), 0,
                           flags);
}

PyType_Slot g_slots[] = {{Py_bf_getbuffer, reinterpret_cast<void*>(get_buffer)}, {0, nullptr}};

}  // namespace

void bind_buffers(nb::module_& m) {
  nb::class_<SlabBuffer>(m, "SlabBuffer", nb::type_slots(g_slots));
}

nb::object make_memoryview(SlabBuffer buffer) {
  nb::object owner = nb::cast(std::move(buffer));
  return nb::steal(PyMemoryView_FromObject(owner.ptr()));
}

}  // namespace headrace
