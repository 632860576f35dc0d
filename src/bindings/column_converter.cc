// From stored bytes to Python values, by the column's encoding. Two ways: convert() for single
// samples, which copies, and convert_batch(), which makes an array over the batch's memory where
// all values have one type and shape and none is missing; the rest goes to Arrow, or value by
// value.
//
// - Shapes and lengths come from the data and are checked against its bytes before anything is
//   made.
// - A value that makes no sense is kCorrupt with sample and column, whether our code or Python's
//   said so; errors that are not about the value (Ctrl-C, memory) pass through.
// - Pickles are never read: they can run any code.
#include "column_converter.h"

#include <cstring>
#include <memory>

#include "convert_litdata.h"
#include "convert_msgpack.h"
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

/// How the values of an encoding become Python objects. A new encoding is a row here.
struct EncodingRow {
  std::string_view name;
  bool is_prefix;  ///< The rest of the encoding is a dtype.
  ColumnConverter::Kind kind;
  /// What makes the value out of a str, for kText.
  const char* module;
  const char* function;
};
// The first row that fits counts.
constexpr EncodingRow kEncodings[] = {
    {"str", false, ColumnConverter::Kind::kStr, nullptr, nullptr},
    {"text", false, ColumnConverter::Kind::kStr, nullptr, nullptr},
    {"json", false, ColumnConverter::Kind::kText, "json", "loads"},
    {"str_int", false, ColumnConverter::Kind::kText, "builtins", "int"},
    {"str_float", false, ColumnConverter::Kind::kText, "builtins", "float"},
    {"str_decimal", false, ColumnConverter::Kind::kText, "decimal", "Decimal"},
    {"list[bytes]", false, ColumnConverter::Kind::kBytesList, nullptr, nullptr},
    {"list[jpeg]", false, ColumnConverter::Kind::kBytesList, nullptr, nullptr},
    {"list[png]", false, ColumnConverter::Kind::kBytesList, nullptr, nullptr},
    {"list[pil]", false, ColumnConverter::Kind::kParsed, "headrace.data.mds_values",
     "load_pil_list"},
    {"pil", false, ColumnConverter::Kind::kParsed, "headrace.data.mds_values", "load_pil"},
    {"jpeg_array", false, ColumnConverter::Kind::kParsed, "headrace.data.mds_values",
     "load_jpeg_array"},
    {"jpegarray", false, ColumnConverter::Kind::kParsed, "headrace.data.mds_values",
     "load_jpeg_array"},
    {"pkl", false, ColumnConverter::Kind::kPickle, nullptr, nullptr},
    {"pickle", false, ColumnConverter::Kind::kPickle, nullptr, nullptr},
    {"ndarray", false, ColumnConverter::Kind::kDynamicArray, nullptr, nullptr},
    // In front of the prefix: MDS writes both.
    {"ndarray:", false, ColumnConverter::Kind::kDynamicArray, nullptr, nullptr},
    {"ndarray:", true, ColumnConverter::Kind::kTypedArray, nullptr, nullptr},
    {"array:", true, ColumnConverter::Kind::kFlatArray, nullptr, nullptr},
    {"list:", true, ColumnConverter::Kind::kFlatArray, nullptr, nullptr},
    {"nullable_list:", true, ColumnConverter::Kind::kNullableList, nullptr, nullptr},
    {"npy", false, ColumnConverter::Kind::kParsed, "headrace.data.unischema", "load_npy"},
    {"npz", false, ColumnConverter::Kind::kParsed, "headrace.data.unischema", "load_npz"},
    {"npz:arrays", false, ColumnConverter::Kind::kParsed, "headrace.data.unischema",
     "load_npz_arrays"},
    {"msgpack", false, ColumnConverter::Kind::kMsgpack, nullptr, nullptr},
    {"msgpack:numpy", false, ColumnConverter::Kind::kMsgpack, "headrace.data.msgpack_values",
     "of_map"},
    {"litdata:numpy", false, ColumnConverter::Kind::kLitDataNumpy, nullptr, nullptr},
    {"litdata:tensor", false, ColumnConverter::Kind::kLitDataTensor, nullptr, nullptr},
    {"litdata:graph", false, ColumnConverter::Kind::kLitDataGraph, nullptr, nullptr},
};

const EncodingRow* find_encoding(std::string_view encoding) {
  for (const EncodingRow& row : kEncodings) {
    if (row.is_prefix ? encoding.starts_with(row.name) : encoding == row.name) return &row;
  }
  return nullptr;
}

std::uint32_t take_u32(std::span<const std::byte>& bytes) {
  if (bytes.size() < 4) throw nb::value_error("it ends inside of its header");
  std::uint32_t value = 0;
  for (std::size_t i = 4; i-- > 0;) value = value << 8 | static_cast<std::uint32_t>(bytes[i]);
  bytes = bytes.subspan(4);
  return value;
}

/// list[bytes]: u32 0, u32 count, u32 sizes[count], then the values back to back; little-endian.
nb::object make_bytes_list(std::span<const std::byte> bytes) {
  if (take_u32(bytes) != 0) throw nb::value_error("its first word is not 0");
  const std::size_t count = take_u32(bytes);
  if (count > bytes.size() / 4) throw nb::value_error("it ends inside of its sizes");
  std::span<const std::byte> sizes = bytes.first(count * 4);
  bytes = bytes.subspan(count * 4);
  nb::list out;
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t size = take_u32(sizes);
    if (size > bytes.size()) throw nb::value_error("it ends inside of a value");
    out.append(nb::bytes(bytes.data(), size));
    bytes = bytes.subspan(size);
  }
  if (!bytes.empty()) throw nb::value_error("bytes are left after its values");
  return out;
}

/// A tensor or array of LitData, by its header.
nb::object make_litdata_array(std::span<const std::byte> bytes, LitDataHeader kind) {
  const LitDataArray array = parse_litdata_array(bytes, kind);
  const auto dtype = parse_dtype(array.dtype);
  if (!dtype || !fits(array.shape, dtype->bits / 8U, array.data.size()))
    throw nb::value_error("the length does not fit the array's header");
  return copy_array(array.data, array.shape, *dtype);
}

nb::object make_litdata_graph(std::span<const std::byte> bytes) {
  nb::dict out;
  for (const LitDataField& field : parse_litdata_graph(bytes))
    out[make_text(field.name)] = make_litdata_array(field.tensor, LitDataHeader::kTensor);
  return out;
}

}  // namespace

std::optional<nb::dlpack::dtype> parse_dtype(std::string_view name) {
  using enum nb::dlpack::dtype_code;
  struct Named {
    std::string_view prefix;
    nb::dlpack::dtype_code code;
  };
  if (name == "bool") return make_dtype(Bool, 8);
  // numpy has none: its bits, which torch.Tensor.view(torch.bfloat16) makes numbers of.
  if (name == "bfloat16") return make_dtype(UInt, 16);
  if (name == "complex64") return make_dtype(Complex, 64);
  if (name == "complex128") return make_dtype(Complex, 128);
  for (const Named& named : {Named{"uint", UInt}, Named{"int", Int}, Named{"float", Float}}) {
    if (!name.starts_with(named.prefix)) continue;
    for (const unsigned bits : {8U, 16U, 32U, 64U}) {
      if (named.code == Float && bits == 8) continue;
      if (name.substr(named.prefix.size()) == std::to_string(bits))
        return make_dtype(named.code, bits);
    }
  }
  return std::nullopt;
}

nb::object make_array(std::byte* data, std::span<const std::size_t> shape, nb::dlpack::dtype dtype,
                      nb::handle owner) {
  using enum nb::dlpack::dtype_code;
  nb::ndarray<nb::numpy> array(data, shape.size(), shape.data(), owner, nullptr, dtype,
                               nb::device::cpu::value, 0, 'C');
  nb::object made = nb::cast(std::move(array));
  if (dtype.bits != 64) return made;
  // numpy has two types of 64-bit integers, and comes by this way to "long long";
  // torch.from_numpy() and isinstance(x, numpy.int64) know only the other.
  if (dtype.code == static_cast<std::uint8_t>(Int)) return made.attr("view")("int64");
  if (dtype.code == static_cast<std::uint8_t>(UInt)) return made.attr("view")("uint64");
  return made;
}

ColumnConverter::ColumnConverter(const OutputColumn& column, nb::object to_arrow)
    : name_(nb::str(column.name.c_str(), column.name.size())),
      encoding_(column.encoding),
      shape_(column.shape.begin(), column.shape.end()),
      fixed_size_bytes_(column.fixed_size_bytes),
      to_arrow_(std::move(to_arrow)) {
  std::string_view dtype_name = column.dtype;
  if (!dtype_name.empty()) {
    kind_ = Kind::kArray;
  } else if (const EncodingRow* row = find_encoding(encoding_)) {
    kind_ = row->kind;
    if (row->is_prefix) dtype_name = std::string_view(encoding_).substr(row->name.size());
    if (row->function != nullptr) parse_ = nb::module_::import_(row->module).attr(row->function);
  }
  if (!dtype_name.empty()) {
    const auto dtype = parse_dtype(dtype_name);
    if (!dtype) {
      raise(Status(Code::kUnsupported, "column " + column.name + ": dtype " +
                                           std::string(dtype_name) +
                                           " is unknown; leave the column out with columns="));
    }
    dtype_ = *dtype;
  }
  if (to_arrow_.is_valid()) arrow_form_ = find_arrow_form();
}

ArrowForm ColumnConverter::find_arrow_form() const {
  ArrowForm form;
  const char* item_format = number_format(dtype_);
  if (kind_ == Kind::kBytes) {
    form.kind = ArrowForm::Kind::kBinary;
  } else if (kind_ == Kind::kStr) {
    form.kind = ArrowForm::Kind::kText;
  } else if (kind_ == Kind::kFlatArray && item_format != nullptr) {
    form = {ArrowForm::Kind::kList, item_format, dtype_.bits / 8U};
  } else if (kind_ == Kind::kNullableList && item_format != nullptr) {
    form = {ArrowForm::Kind::kNullableList, item_format, dtype_.bits / 8U};
  } else if (kind_ == Kind::kArray && shape_.empty() && item_format != nullptr) {
    form = {ArrowForm::Kind::kNumbers, item_format, dtype_.bits / 8U};
  }
  return form;
}

nb::object ColumnConverter::convert_array(std::span<const std::byte> bytes) const {
  nb::dlpack::dtype dtype = dtype_;
  if (kind_ == Kind::kArray) {
    if (!fits(shape_, dtype.bits / 8U, bytes.size()))
      throw nb::value_error("the length does not fit the dtype and shape");
    return copy_array(bytes, shape_, dtype);
  }
  if (kind_ == Kind::kFlatArray || kind_ == Kind::kNullableList) {
    const std::size_t item_bytes = dtype.bits / 8U;
    if (bytes.size() % item_bytes != 0)
      throw nb::value_error("the length is no multiple of the item size");
    const std::size_t count = bytes.size() / item_bytes;
    return copy_array(bytes, {&count, 1}, dtype);
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

nb::object ColumnConverter::convert_nullable_list(std::span<const std::byte> bytes) const {
  if (bytes.empty()) throw nb::value_error("its first byte is missing");
  const bool has_nulls = bytes[0] != std::byte{0};
  bytes = bytes.subspan(1);
  if (!has_nulls) return convert_array(bytes);
  const std::size_t item_bytes = dtype_.bits / 8U + 1;
  if (bytes.size() % item_bytes != 0)
    throw nb::value_error("the length is no multiple of the item size");
  const std::size_t count = bytes.size() / item_bytes;
  nb::list items = nb::cast<nb::list>(convert_array(bytes.subspan(count)).attr("tolist")());
  for (std::size_t i = 0; i < count; ++i) {
    if (bytes[i] == std::byte{0}) items[i] = nb::none();
  }
  return items;
}

nb::object ColumnConverter::convert_value(std::span<const std::byte> bytes) const {
  switch (kind_) {
    case Kind::kBytes:
      return nb::bytes(bytes.data(), bytes.size());
    case Kind::kStr:
      return make_text(bytes);
    case Kind::kText:
      return parse_(make_text(bytes));
    case Kind::kBytesList:
      return make_bytes_list(bytes);
    case Kind::kFlatArray:
    case Kind::kDynamicArray:
    case Kind::kTypedArray:
      return convert_array(bytes);
    case Kind::kNullableList:
      return convert_nullable_list(bytes);
    case Kind::kParsed:
      return parse_(nb::bytes(bytes.data(), bytes.size()));
    case Kind::kMsgpack:
      return make_msgpack(bytes, parse_);
    case Kind::kArray: {
      nb::object array = convert_array(bytes);
      if (!shape_.empty()) return array;
      const bool is_plain = encoding_ == "int" || encoding_ == "float" || encoding_ == "bool";
      return is_plain ? array.attr("item")() : nb::object(array[nb::make_tuple()]);
    }
    case Kind::kLitDataNumpy:
      return make_litdata_array(bytes, LitDataHeader::kNumpy);
    case Kind::kLitDataTensor:
      return make_litdata_array(bytes, LitDataHeader::kTensor);
    case Kind::kLitDataGraph:
      return make_litdata_graph(bytes);
    case Kind::kPickle:
      break;
  }
  raise(Status(
      Code::kUnsupported,
      "column " + nb::cast<std::string>(name_) +
          " holds pickles, which can run any code when they are read; leave it out with columns="));
}

void ColumnConverter::raise_corrupt(std::uint64_t position, const std::string& reason) const {
  raise(Status(Code::kCorrupt, "sample " + std::to_string(position) + ", column " +
                                   nb::cast<std::string>(name_) + ": not a valid " + encoding_ +
                                   ": " + reason));
}

nb::object ColumnConverter::convert(const ColumnBytes& value, std::uint64_t position) const {
  if (!value.present) return nb::none();
  std::string reason;
  try {
    if (value.writer == nullptr) return convert_value(value.bytes);
    const auto written = std::make_unique<std::byte[]>(value.size());
    const std::span<std::byte> bytes(written.get(), value.size());
    value.write_to(bytes);
    return convert_value(bytes);
  } catch (const nb::builtin_exception& e) {
    reason = e.what();
  } catch (nb::python_error& e) {
    // ValueError, or decimal.InvalidOperation: both speak of the value. Others (Ctrl-C, our own)
    // pass.
    // So does nesting that is too deep for a parser.
    const bool is_too_deep =
        e.matches(PyExc_RecursionError) && (kind_ == Kind::kText || kind_ == Kind::kParsed);
    const bool about_value =
        (e.matches(PyExc_ValueError) || e.matches(PyExc_ArithmeticError) || is_too_deep) &&
        kind_ != Kind::kPickle;
    if (!about_value) throw;
    reason = nb::cast<std::string>(nb::str(e.value()));
  }
  raise_corrupt(position, reason);
}

nb::object ColumnConverter::convert_batch(const BatchColumn& column, const SharedBatch& owner,
                                          nb::handle capsule) const {
  const Batch& batch = owner->batch();
  if (kind_ == Kind::kArray && column.offsets.empty() && column.present.empty()) {
    std::vector<std::size_t> shape(1, batch.count());
    shape.insert(shape.end(), shape_.begin(), shape_.end());
    return make_array(column.values.data(), shape, dtype_, capsule);
  }
  // Arrow has offsets for bytes and lists, none for numbers.
  const bool has_form = column.offsets.empty() == (arrow_form_.kind == ArrowForm::Kind::kNumbers) &&
                        arrow_form_.kind != ArrowForm::Kind::kNone;
  return has_form ? convert_arrow(column, owner) : convert_list(column, batch);
}

nb::object ColumnConverter::convert_arrow(const BatchColumn& column,
                                          const SharedBatch& owner) const {
  try {
    nb::object array = to_arrow_(make_arrow_column(column, arrow_form_, owner));
    if (kind_ == Kind::kStr) array.attr("validate")(nb::arg("full") = true);
    return array;
  } catch (const nb::builtin_exception&) {
  } catch (nb::python_error& e) {
    if (!e.matches(PyExc_ValueError)) throw;
  }
  // Some value is broken: reading them one by one says which, and raises.
  return convert_list(column, owner->batch());
}

nb::object ColumnConverter::convert_list(const BatchColumn& column, const Batch& batch) const {
  const std::size_t count = batch.count();
  const nb::object values = nb::steal(PyList_New(static_cast<Py_ssize_t>(count)));
  if (!values.is_valid()) throw nb::python_error();
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint64_t begin = column.offsets.empty() ? i * fixed_size_bytes_ : column.offsets[i];
    const std::uint64_t end =
        column.offsets.empty() ? begin + fixed_size_bytes_ : column.offsets[i + 1];
    const ColumnBytes value{.bytes = column.values.subspan(begin, end - begin),
                            .present = column.present.empty() || column.present[i] != 0};
    nb::object converted = convert(value, static_cast<std::uint64_t>(batch.ids()[i]));
    // Cannot fail: the list is new and this long. It takes the reference.
    PyList_SetItem(values.ptr(), static_cast<Py_ssize_t>(i), converted.release().ptr());
  }
  return values;
}

}  // namespace headrace
