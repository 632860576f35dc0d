#include "decode.h"

#include <cstring>
#include <memory>

#include "errors.h"

namespace headrace {
namespace {

nb::dlpack::dtype make_dtype(nb::dlpack::dtype_code code, unsigned bits) {
  return {static_cast<std::uint8_t>(code), static_cast<std::uint8_t>(bits), 1};
}

/// A fresh numpy array with a copy of `bytes`.
nb::object copy_array(std::span<const std::byte> bytes, std::span<const std::size_t> shape,
                      nb::dlpack::dtype dtype) {
  auto memory = std::make_unique<std::byte[]>(bytes.size());
  if (!bytes.empty()) std::memcpy(memory.get(), bytes.data(), bytes.size());
  std::byte* data = memory.get();
  const nb::capsule owner(memory.release(),
                          [](void* p) noexcept { delete[] static_cast<std::byte*>(p); });
  return make_array(data, shape, dtype, owner);
}

nb::object make_text(std::span<const std::byte> bytes) {
  PyObject* text = PyUnicode_DecodeUTF8(reinterpret_cast<const char*>(bytes.data()),
                                        static_cast<Py_ssize_t>(bytes.size()), "strict");
  if (text == nullptr) throw nb::python_error();
  return nb::steal(text);
}

/// Type byte of an MDS ndarray (facts of the format: docs/formats.md).
std::optional<nb::dlpack::dtype> parse_type_byte(unsigned code) {
  using enum nb::dlpack::dtype_code;
  switch (code) {
    case 8:
    case 16:
    case 32:
    case 64:
      return make_dtype(UInt, code);
    case 9:
    case 17:
    case 33:
    case 65:
      return make_dtype(Int, code - 1);
    case 18:
    case 34:
    case 66:
      return make_dtype(Float, code - 2);
    default:
      return std::nullopt;
  }
}

/// Reads the shape header of an MDS ndarray: a byte (ndim << 2 | k), then ndim dims of 2^k bytes.
/// Advances `bytes`.
std::optional<std::vector<std::size_t>> take_shape(std::span<const std::byte>& bytes) {
  if (bytes.empty()) return std::nullopt;
  const auto head = static_cast<unsigned>(bytes[0]);
  const std::size_t width = std::size_t{1} << (head & 3);
  const std::size_t ndim = head >> 2;
  bytes = bytes.subspan(1);
  if (bytes.size() < ndim * width) return std::nullopt;
  std::vector<std::size_t> shape(ndim);
  for (std::size_t i = 0; i < ndim; ++i) {
    for (std::size_t b = width; b-- > 0;)
      shape[i] = shape[i] << 8 | static_cast<std::size_t>(bytes[i * width + b]);
  }
  bytes = bytes.subspan(ndim * width);
  return shape;
}

/// Whether `count_bytes` is exactly the product of the shape and the item size; safe against
/// overflow.
bool fits(std::span<const std::size_t> shape, std::size_t item_bytes, std::size_t count_bytes) {
  std::size_t total = item_bytes;
  for (const std::size_t dim : shape) {
    if (dim != 0 && total > count_bytes / dim) return false;
    total *= dim;
  }
  return total == count_bytes;
}

}  // namespace

std::optional<nb::dlpack::dtype> parse_dtype(std::string_view name) {
  using enum nb::dlpack::dtype_code;
  struct Named {
    std::string_view prefix;
    nb::dlpack::dtype_code code;
  };
  if (name == "bool") return make_dtype(Bool, 8);
  for (const Named& named : {Named{"uint", UInt}, Named{"int", Int}, Named{"float", Float}}) {
    if (!name.starts_with(named.prefix)) continue;
    for (const unsigned bits : {8U, 16U, 32U, 64U}) {
      if (name.substr(named.prefix.size()) == std::to_string(bits))
        return make_dtype(named.code, bits);
    }
  }
  return std::nullopt;
}

nb::object make_array(std::byte* data, std::span<const std::size_t> shape, nb::dlpack::dtype dtype,
                      nb::handle owner) {
  nb::ndarray<nb::numpy> array(data, shape.size(), shape.data(), owner, nullptr, dtype,
                               nb::device::cpu::value, 0, 'C');
  return nb::cast(std::move(array));
}

ColumnDecoder::ColumnDecoder(const Column& column)
    : name_(nb::str(column.name.c_str(), column.name.size())),
      encoding_(column.encoding),
      shape_(column.shape.begin(), column.shape.end()),
      fixed_size_bytes_(column.fixed_size_bytes) {
  const std::string& encoding = column.encoding;
  if (!column.dtype.empty()) {
    kind_ = Kind::kArray;
    const auto dtype = parse_dtype(column.dtype);
    if (!dtype)
      raise(
          Status(Code::kUnsupported, "column " + column.name + ": unknown dtype " + column.dtype));
    dtype_ = *dtype;
  } else if (encoding == "str") {
    kind_ = Kind::kStr;
  } else if (encoding == "json") {
    kind_ = Kind::kJson;
    parse_ = nb::module_::import_("json").attr("loads");
  } else if (encoding == "str_int" || encoding == "str_float") {
    kind_ = Kind::kText;
    parse_ = nb::module_::import_("builtins").attr(encoding == "str_int" ? "int" : "float");
  } else if (encoding == "str_decimal") {
    kind_ = Kind::kText;
    parse_ = nb::module_::import_("decimal").attr("Decimal");
  } else if (encoding == "ndarray" || encoding == "ndarray:") {
    kind_ = Kind::kDynamicArray;
  } else if (encoding.starts_with("ndarray:")) {
    kind_ = Kind::kTypedArray;
    const auto dtype = parse_dtype(std::string_view(encoding).substr(8));
    if (!dtype)
      raise(Status(Code::kUnsupported, "column " + column.name + ": unknown encoding " + encoding));
    dtype_ = *dtype;
  } else if (encoding == "pkl") {
    kind_ = Kind::kPickle;
  }
}

nb::object ColumnDecoder::decode_array(std::span<const std::byte> bytes) const {
  nb::dlpack::dtype dtype = dtype_;
  if (kind_ == Kind::kArray) {
    if (!fits(shape_, dtype.bits / 8U, bytes.size()))
      throw nb::value_error("the length does not fit the dtype and shape");
    return copy_array(bytes, shape_, dtype);
  }
  if (kind_ == Kind::kDynamicArray) {
    const auto parsed =
        bytes.empty() ? std::nullopt : parse_type_byte(static_cast<unsigned>(bytes[0]));
    if (!parsed) throw nb::value_error("unknown array type byte");
    dtype = *parsed;
    bytes = bytes.subspan(1);
  }
  const auto shape = take_shape(bytes);
  if (!shape || !fits(*shape, dtype.bits / 8U, bytes.size())) {
    throw nb::value_error("the length does not fit the array's header");
  }
  return copy_array(bytes, *shape, dtype);
}

nb::object ColumnDecoder::decode_value(std::span<const std::byte> bytes) const {
  switch (kind_) {
    case Kind::kBytes:
      return nb::bytes(bytes.data(), bytes.size());
    case Kind::kStr:
      return make_text(bytes);
    case Kind::kJson:
    case Kind::kText:
      return parse_(make_text(bytes));
    case Kind::kDynamicArray:
    case Kind::kTypedArray:
      return decode_array(bytes);
    case Kind::kArray: {
      nb::object array = decode_array(bytes);
      if (!shape_.empty()) return array;
      return encoding_ == "int" ? array.attr("item")() : nb::object(array[nb::make_tuple()]);
    }
    case Kind::kPickle:
      break;
  }
  raise(Status(
      Code::kUnsupported,
      "column " + nb::cast<std::string>(name_) +
          " holds pickles, which can run any code when they are read; leave it out with columns="));
}

void ColumnDecoder::raise_corrupt(std::uint64_t position, const std::string& reason) const {
  raise(Status(Code::kCorrupt, "sample " + std::to_string(position) + ", column " +
                                   nb::cast<std::string>(name_) + ": not a valid " + encoding_ +
                                   ": " + reason));
}

nb::object ColumnDecoder::decode(const ColumnBytes& value, std::uint64_t position) const {
  if (!value.present) return nb::none();
  std::string reason;
  try {
    return decode_value(value.bytes);
  } catch (const nb::builtin_exception& e) {
    reason = e.what();
  } catch (nb::python_error& e) {
    // ValueError, or decimal.InvalidOperation: both speak of the value. Others (Ctrl-C, our own)
    // pass.
    const bool about_value =
        (e.matches(PyExc_ValueError) || e.matches(PyExc_ArithmeticError)) && kind_ != Kind::kPickle;
    if (!about_value) throw;
    reason = nb::cast<std::string>(nb::str(e.value()));
  }
  raise_corrupt(position, reason);
}

nb::object ColumnDecoder::decode_batch(const BatchColumn& column, const Batch& batch,
                                       nb::handle owner) const {
  const std::size_t count = batch.count();
  if (kind_ == Kind::kArray && column.offsets.empty() && column.present.empty()) {
    std::vector<std::size_t> shape(1, count);
    shape.insert(shape.end(), shape_.begin(), shape_.end());
    return make_array(column.values.data(), shape, dtype_, owner);
  }
  nb::list values;
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint64_t begin = column.offsets.empty() ? i * fixed_size_bytes_ : column.offsets[i];
    const std::uint64_t end =
        column.offsets.empty() ? begin + fixed_size_bytes_ : column.offsets[i + 1];
    const ColumnBytes value{column.values.subspan(begin, end - begin),
                            column.present.empty() || column.present[i] != 0};
    values.append(decode(value, static_cast<std::uint64_t>(batch.ids()[i])));
  }
  return values;
}

}  // namespace headrace
