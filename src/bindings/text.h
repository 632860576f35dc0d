#pragma once
/// \file
/// std::string and std::string_view to str and back, in place of nanobind/stl/string.h and
/// string_view.h: keys and file names are bytes and need not be UTF-8. As everywhere in Python
/// (PEP 383), a byte that is not UTF-8 becomes the surrogate U+DC80 + byte - 0x80 and comes back as
/// the byte. Values of data sets do not pass here: text columns are read strictly
/// (column_converter.cc).
#include <nanobind/nanobind.h>

#include <optional>
#include <string>
#include <string_view>

NAMESPACE_BEGIN(NB_NAMESPACE)
NAMESPACE_BEGIN(detail)

inline handle text_from_bytes(std::string_view bytes) noexcept {
  return PyUnicode_DecodeUTF8(bytes.data(), static_cast<Py_ssize_t>(bytes.size()),
                              "surrogateescape");
}

/// The bytes of a str; nullopt for other objects and other surrogates. They lie in the str, or in
/// `owner`, a bytes object that the caller has to drop.
inline std::optional<std::string_view> bytes_from_text(handle text, PyObject*& owner) noexcept {
  if (!PyUnicode_Check(text.ptr())) return std::nullopt;
  Py_ssize_t size = 0;
  if (const char* utf8 = PyUnicode_AsUTF8AndSize(text.ptr(), &size))
    return std::string_view(utf8, static_cast<std::size_t>(size));
  PyErr_Clear();
  owner = PyUnicode_AsEncodedString(text.ptr(), "utf-8", "surrogateescape");
  if (owner == nullptr) {
    PyErr_Clear();
    return std::nullopt;
  }
  return std::string_view(PyBytes_AsString(owner), static_cast<std::size_t>(PyBytes_Size(owner)));
}

template <>
struct type_caster<std::string_view> {
  NB_TYPE_CASTER(std::string_view, const_name("str"))

  bool from_python(handle src, std::uint32_t, cleanup_list* cleanup) noexcept {
    PyObject* owner = nullptr;
    const auto bytes = bytes_from_text(src, owner);
    if (owner != nullptr && cleanup == nullptr) {
      Py_DECREF(owner);  // nb::cast<>() outside of a call has nowhere to keep the bytes.
      return false;
    }
    if (owner != nullptr) cleanup->append(owner);
    if (bytes) value = *bytes;
    return bytes.has_value();
  }

  static handle from_cpp(std::string_view value, rv_policy, cleanup_list*) noexcept {
    return text_from_bytes(value);
  }
};

template <>
struct type_caster<std::string> {
  NB_TYPE_CASTER(std::string, const_name("str"))

  bool from_python(handle src, std::uint32_t, cleanup_list*) noexcept {
    PyObject* owner = nullptr;
    const auto bytes = bytes_from_text(src, owner);
    if (bytes) value = *bytes;
    Py_XDECREF(owner);
    return bytes.has_value();
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
