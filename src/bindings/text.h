#pragma once
/// \file
/// std::string and std::string_view to str and back, in place of nanobind/stl/string.h and
/// string_view.h: keys and file names are bytes and need not be UTF-8. As everywhere in Python
/// (PEP 383), a byte that is not UTF-8 becomes the surrogate U+DC80 + byte - 0x80 and comes back as
/// the byte. Values of data sets do not pass here: text columns are decoded strictly (decode.cc).
#include <nanobind/nanobind.h>

#include <string>
#include <string_view>

NAMESPACE_BEGIN(NB_NAMESPACE)
NAMESPACE_BEGIN(detail)

inline handle text_from_bytes(std::string_view bytes) noexcept {
  return PyUnicode_DecodeUTF8(bytes.data(), static_cast<Py_ssize_t>(bytes.size()),
                              "surrogateescape");
}

template <>
struct type_caster<std::string_view> {
  NB_TYPE_CASTER(std::string_view, const_name("str"))

  bool from_python(handle src, std::uint32_t, cleanup_list* cleanup) noexcept {
    if (!PyUnicode_Check(src.ptr())) return false;
    Py_ssize_t size = 0;
    if (const char* text = PyUnicode_AsUTF8AndSize(src.ptr(), &size)) {
      value = std::string_view(text, static_cast<std::size_t>(size));
      return true;
    }
    PyErr_Clear();
    PyObject* bytes = PyUnicode_AsEncodedString(src.ptr(), "utf-8", "surrogateescape");
    if (bytes == nullptr) {
      PyErr_Clear();
      return false;
    }
    if (cleanup == nullptr) {  // nb::cast<>() outside of a call has nowhere to keep the bytes.
      Py_DECREF(bytes);
      return false;
    }
    cleanup->append(bytes);
    value = std::string_view(PyBytes_AS_STRING(bytes),
                             static_cast<std::size_t>(PyBytes_GET_SIZE(bytes)));
    return true;
  }

  static handle from_cpp(std::string_view value, rv_policy, cleanup_list*) noexcept {
    return text_from_bytes(value);
  }
};

template <>
struct type_caster<std::string> {
  NB_TYPE_CASTER(std::string, const_name("str"))

  bool from_python(handle src, std::uint32_t, cleanup_list*) noexcept {
    if (!PyUnicode_Check(src.ptr())) return false;
    Py_ssize_t size = 0;
    if (const char* text = PyUnicode_AsUTF8AndSize(src.ptr(), &size)) {
      value.assign(text, static_cast<std::size_t>(size));
      return true;
    }
    PyErr_Clear();
    PyObject* bytes = PyUnicode_AsEncodedString(src.ptr(), "utf-8", "surrogateescape");
    if (bytes == nullptr) {
      PyErr_Clear();
      return false;
    }
    value.assign(PyBytes_AS_STRING(bytes), static_cast<std::size_t>(PyBytes_GET_SIZE(bytes)));
    Py_DECREF(bytes);
    return true;
  }

  static handle from_cpp(const std::string& value, rv_policy, cleanup_list*) noexcept {
    return text_from_bytes(value);
  }
};

NAMESPACE_END(detail)
NAMESPACE_END(NB_NAMESPACE)

namespace headrace {

/// For messages, which are read and printed: bytes that are not UTF-8 come as "\\xff".
inline nanobind::object readable_text(std::string_view bytes) {
  return nanobind::steal(PyUnicode_DecodeUTF8(bytes.data(), static_cast<Py_ssize_t>(bytes.size()),
                                              "backslashreplace"));
}

}  // namespace headrace
