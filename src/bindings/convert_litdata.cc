#include "convert_litdata.h"

#include <array>
#include <cstdint>
#include <cstring>

#include "bind.h"

namespace headrace {
namespace {

// Names by number; "" what no array has. Source: litdata/constants.py.
constexpr std::array<std::string_view, 21> kTorch{
    "float32",    "float32", "float64", "float64",  "complex64", "complex64", "complex128",
    "complex128", "float16", "float16", "bfloat16", "uint8",     "int8",      "int16",
    "int16",      "int32",   "int32",   "int64",    "int64",     "bool",      "uint16"};
constexpr std::array<std::string_view, 18> kNumpy{
    "int8",       "int16",  "int32",   "int64",   "uint8",   "uint16",
    "uint32",     "uint64", "float16", "float32", "float64", "complex64",
    "complex128", "bool",   "",        "",        "",        ""};

// Takes numbers and spans off the front.
class Reader {
 public:
  explicit Reader(std::span<const std::byte> bytes) : rest_(bytes) {}

  std::span<const std::byte> take(std::size_t size) {
    if (size > rest_.size()) throw nb::value_error("it ends too early");
    const auto front = rest_.first(size);
    rest_ = rest_.subspan(size);
    return front;
  }
  std::uint32_t take_big(std::size_t size) {
    std::uint32_t value = 0;
    for (const std::byte b : take(size)) value = value << 8 | std::to_integer<std::uint32_t>(b);
    return value;
  }
  std::uint32_t take_little(std::size_t size) {
    const auto bytes = take(size);
    std::uint32_t value = 0;
    for (std::size_t i = size; i-- > 0;)
      value = value << 8 | std::to_integer<std::uint32_t>(bytes[i]);
    return value;
  }
  std::span<const std::byte> rest() const { return rest_; }

 private:
  std::span<const std::byte> rest_;
};

bool is_meta(std::span<const std::byte> name) {
  constexpr std::string_view kMeta = "_meta";
  return name.size() == kMeta.size() && std::memcmp(name.data(), kMeta.data(), kMeta.size()) == 0;
}

}  // namespace

LitDataArray parse_litdata_array(std::span<const std::byte> bytes, LitDataHeader kind) {
  const bool is_tensor = kind == LitDataHeader::kTensor;
  Reader reader(bytes);
  const auto word = [&] { return is_tensor ? reader.take_big(4) : reader.take_little(4); };
  const std::span<const std::string_view> names =
      is_tensor ? std::span<const std::string_view>(kTorch) : kNumpy;
  LitDataArray array;
  const std::uint32_t number = word();
  if (number >= names.size() || names[number].empty()) throw nb::value_error("unknown dtype");
  array.dtype = names[number];
  // 64 is the most axes that numpy knows.
  const std::uint32_t rank = word();
  if (rank > 64) throw nb::value_error("too many axes");
  for (std::uint32_t i = 0; i < rank; ++i) array.shape.push_back(word());
  array.data = reader.rest();
  return array;
}

std::vector<LitDataField> parse_litdata_graph(std::span<const std::byte> bytes) {
  constexpr std::string_view kMagic = "LDGR";
  Reader reader(bytes);
  const auto magic = reader.take(kMagic.size());
  if (std::memcmp(magic.data(), kMagic.data(), kMagic.size()) != 0)
    throw nb::value_error("it is pickled, which is never read");
  const std::uint32_t version = reader.take_big(1);
  if (version < 1 || version > 3) throw nb::value_error("unknown version of a graph");
  const std::size_t width = version == 3 ? 2 : 1;
  std::vector<LitDataField> fields;
  const std::uint32_t count = reader.take_big(width);
  for (std::uint32_t i = 0; i < count; ++i) {
    const auto name = reader.take(reader.take_big(width));
    const bool is_pickle = version >= 2 && reader.take_big(1) != 0;
    const auto payload = reader.take(reader.take_big(4));
    if (is_meta(name)) continue;
    if (is_pickle) throw nb::value_error("a part of it is pickled, which is never read");
    fields.push_back({name, payload});
  }
  return fields;
}

}  // namespace headrace
