// What a column's bytes are is known from its encoding, a string of the dataset's format; formats
// of numbers are translated by these types, all other bytes are handed on as they are. An encoding
// that is not understood is an error rather than bytes: readers of the new dataset would not know
// them either.
//
// Every array is checked against its bytes before it is written: shapes come from the data.
#include "pack/cell_type.h"

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cmath>

#include "base/endian.h"
#include "base/strings.h"

namespace headrace::pack_detail {
namespace {

using Kind = CellType::Kind;

constexpr std::array<Dtype, 12> kDtypes{{
    {"int8", "|i1", Dtype::Kind::kSigned, 1, 0, 9},
    {"int16", "<i2", Dtype::Kind::kSigned, 2, 1, 17},
    {"int32", "<i4", Dtype::Kind::kSigned, 4, 2, 33},
    {"int64", "<i8", Dtype::Kind::kSigned, 8, 3, 65},
    {"uint8", "|u1", Dtype::Kind::kUnsigned, 1, 4, 8},
    {"uint16", "<u2", Dtype::Kind::kUnsigned, 2, 5, 16},
    {"uint32", "<u4", Dtype::Kind::kUnsigned, 4, 6, 32},
    {"uint64", "<u8", Dtype::Kind::kUnsigned, 8, 7, 64},
    {"float16", "<f2", Dtype::Kind::kFloat, 2, 8, 18},
    {"float32", "<f4", Dtype::Kind::kFloat, 4, 9, 34},
    {"float64", "<f8", Dtype::Kind::kFloat, 8, 10, 66},
    {"bool", "|b1", Dtype::Kind::kBool, 1, 13, 0},
}};

// MDS encodings whose bytes mean the same wherever they are stored, and those of files that other
// formats hand on.
constexpr std::array<std::string_view, 13> kOpaque{
    "bytes",      "jpeg",      "png",     "pil",       "jpeg_array",  "jpegarray", "list[pil]",
    "list[jpeg]", "list[png]", "str_int", "str_float", "str_decimal", "pkl"};

double real_of_half(std::uint16_t bits) {
  const int exponent = (bits >> 10) & 31;
  const int fraction = bits & 1023;
  double value = 0;
  if (exponent == 31) {
    value = fraction != 0 ? std::nan("") : HUGE_VAL;
  } else if (exponent == 0) {
    // Subnormal: 2^-14 times fraction / 2^10.
    value = std::ldexp(fraction, -24);
  } else {
    value = std::ldexp(1024 + fraction, exponent - 25);
  }
  return (bits & 0x8000) != 0 ? -value : value;
}

Status misfit(const CellType& type) {
  return Status(Code::kCorrupt,
                "its bytes are no array of " +
                    (type.dtype != nullptr ? std::string(type.dtype->name) : "a known type"));
}

/// MDS: a byte (dimensions << 2 | k), then dimensions of 2^k bytes each.
bool take_shape(std::span<const std::byte>& bytes, std::vector<std::uint64_t>& shape) {
  if (bytes.empty()) return false;
  const auto head = static_cast<unsigned>(bytes[0]);
  const std::size_t width = std::size_t{1} << (head & 3);
  bytes = bytes.subspan(1);
  if (bytes.size() < (head >> 2) * width) return false;
  for (std::size_t i = 0; i < head >> 2; ++i) {
    std::uint64_t dim = 0;
    for (std::size_t b = width; b-- > 0;)
      dim = dim << 8 | static_cast<std::uint64_t>(bytes[i * width + b]);
    shape.push_back(dim);
  }
  bytes = bytes.subspan((head >> 2) * width);
  return true;
}

bool fits(const ArrayView& view) {
  std::uint64_t total = view.dtype->size_bytes;
  for (const std::uint64_t dim : view.shape) {
    // By division, so that a shape of the data cannot overflow the product.
    if (dim != 0 && total > view.data.size() / dim) return false;
    total *= dim;
  }
  return total == view.data.size();
}

bool is_any_of(std::string_view text, std::span<const std::string_view> list) {
  return std::find(list.begin(), list.end(), text) != list.end();
}

}  // namespace

const Dtype* find_dtype(std::string_view numpy_name) noexcept {
  const auto* const found = std::find_if(kDtypes.begin(), kDtypes.end(),
                                         [&](const Dtype& d) { return d.name == numpy_name; });
  return found == kDtypes.end() ? nullptr : found;
}

Result<std::int64_t> Dtype::integer_at(const std::byte* at) const {
  std::uint64_t value = 0;
  for (std::uint32_t i = size_bytes; i-- > 0;)
    value = value << 8 | static_cast<std::uint64_t>(at[i]);
  if (kind == Kind::kBool) return value != 0 ? 1 : 0;
  if (kind == Kind::kUnsigned) {
    if (value > INT64_MAX)
      return Status(Code::kUnsupported, "the format has no integers above 2^63 - 1");
    return static_cast<std::int64_t>(value);
  }
  const std::uint32_t unused = 64 - 8 * size_bytes;
  return static_cast<std::int64_t>(value << unused) >> unused;
}

double Dtype::real_at(const std::byte* at) const {
  if (size_bytes == 2) return real_of_half(load_le<std::uint16_t>(at));
  if (size_bytes == 4) return double{std::bit_cast<float>(load_le<std::uint32_t>(at))};
  return std::bit_cast<double>(load_le<std::uint64_t>(at));
}

Result<ArrayView> CellType::array_of(std::span<const std::byte> cell) const {
  ArrayView view{.shape = shape, .data = cell, .dtype = dtype};
  if (kind == Kind::kMds) {
    const auto* const found = std::find_if(kDtypes.begin(), kDtypes.end(), [&](const Dtype& d) {
      return !cell.empty() && d.mds_byte == static_cast<std::uint8_t>(cell[0]);
    });
    if (found == kDtypes.end()) return misfit(*this);
    view.dtype = found;
    view.data = cell.subspan(1);
  }
  if (kind == Kind::kMds || kind == Kind::kMdsTyped) {
    if (!take_shape(view.data, view.shape)) return misfit(*this);
  }
  if (kind == Kind::kFlat) view.shape = {cell.size() / dtype->size_bytes};
  return fits(view) ? Result<ArrayView>(std::move(view)) : misfit(*this);
}

Result<CellType> cell_type_of(const Column& column) {
  const std::string_view encoding = column.encoding;
  CellType type;
  type.encoding = encoding;
  const auto typed = [&](Kind kind, std::string_view dtype) -> Result<CellType> {
    type.kind = kind;
    type.dtype = find_dtype(dtype);
    if (type.dtype != nullptr) return type;
    return Status(Code::kUnsupported,
                  "column '" + column.name + "': numbers of type " + std::string(dtype));
  };
  if (!column.dtype.empty()) {
    type.shape = column.shape;
    return typed(column.shape.empty() ? Kind::kNumber : Kind::kArray, column.dtype);
  }
  if (encoding == "str" || encoding == "json") {
    type.kind = encoding == "str" ? Kind::kStr : Kind::kJson;
    return type;
  }
  if (encoding == "ascii:int") return typed(Kind::kAsciiInt, "int64");
  if (encoding.starts_with("array:")) return typed(Kind::kFlat, encoding.substr(6));
  if (encoding == "ndarray" || encoding == "ndarray:") {
    type.kind = Kind::kMds;
    return type;
  }
  if (encoding.starts_with("ndarray:")) return typed(Kind::kMdsTyped, encoding.substr(8));
  if (is_any_of(encoding, kOpaque)) return type;
  return Status(Code::kUnsupported, "column '" + column.name + "' has encoding " +
                                        std::string(encoding) + ", which has no copy in bytes");
}

Result<std::int64_t> parse_cell_integer(std::span<const std::byte> cell) {
  std::string_view text(reinterpret_cast<const char*>(cell.data()), cell.size());
  text = trim(text, kWhiteSpace);
  if (text.starts_with('+')) text.remove_prefix(1);
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size())
    return Status(Code::kCorrupt, "its bytes are no decimal number of 64 bits");
  return value;
}

std::string_view encoding_of_suffix(std::string_view suffix) noexcept {
  constexpr std::array<std::string_view, 3> kText{"txt", "text", "transcript"};
  constexpr std::array<std::string_view, 5> kNumbers{"cls", "cls2", "index", "inx", "id"};
  constexpr std::array<std::string_view, 2> kJsons{"json", "jsn"};
  const std::string_view last = suffix.substr(suffix.rfind('.') + 1);
  if (is_any_of(last, kText)) return "str";
  if (is_any_of(last, kNumbers)) return "int";
  return is_any_of(last, kJsons) ? "json" : "bytes";
}

}  // namespace headrace::pack_detail
