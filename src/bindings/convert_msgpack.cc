// Values of a batch have been checked when it was made; all checks are made again, since nothing
// here may depend on where a value came from.
#include "convert_msgpack.h"

#include <string>

#include "headrace/msgpack.h"

namespace headrace {
namespace {

using Type = MsgpackToken::Type;

nb::object own(PyObject* object) {
  if (object == nullptr) throw nb::python_error();
  return nb::steal(object);
}

class Maker {
 public:
  Maker(std::span<const std::byte> bytes, const nb::object& of_map)
      : reader_(bytes), of_map_(of_map) {}

  nb::object make() {
    const auto token = reader_.next();
    if (!token) throw nb::value_error(std::string(token.error().message()).c_str());
    switch ((*token).type) {
      case Type::kArray:
        return make_list((*token).count);
      case Type::kMap:
        return make_map((*token).count);
      default:
        return make_scalar(*token);
    }
  }

 private:
  nb::object make_scalar(const MsgpackToken& token) {
    const auto* text = reinterpret_cast<const char*>(token.bytes.data());
    const auto size = static_cast<Py_ssize_t>(token.bytes.size());
    switch (token.type) {
      case Type::kBool:
        return nb::bool_(token.is_true);
      case Type::kInt:
        return own(PyLong_FromLongLong(token.int_value));
      case Type::kUint:
        return own(PyLong_FromUnsignedLongLong(token.uint_value));
      case Type::kFloat:
        return own(PyFloat_FromDouble(token.float_value));
      case Type::kString:
        return own(PyUnicode_DecodeUTF8(text, size, "strict"));
      case Type::kBinary:
        return own(PyBytes_FromStringAndSize(text, size));
      case Type::kTimestamp:
        return nb::module_::import_("headrace.data.msgpack_values")
            .attr("timestamp")(token.int_value, token.nanoseconds);
      default:
        return nb::none();
    }
  }

  nb::object make_list(std::uint32_t count) {
    nb::list values;
    for (std::uint32_t i = 0; i < count; ++i) values.append(make());
    return values;
  }

  nb::object make_map(std::uint32_t count) {
    nb::dict values;
    for (std::uint32_t i = 0; i < count; ++i) {
      const nb::object key = make();
      values[key] = make();
    }
    return of_map_.is_valid() ? of_map_(values) : values;
  }

  MsgpackReader reader_;
  const nb::object& of_map_;
};

}  // namespace

nb::object make_msgpack(std::span<const std::byte> bytes, const nb::object& of_map) {
  if (const Status status = check_msgpack(bytes); !status.ok())
    throw nb::value_error(std::string(status.message()).c_str());
  return Maker(bytes, of_map).make();
}

}  // namespace headrace
