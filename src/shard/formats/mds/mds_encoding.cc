#include "shard/formats/mds/mds_encoding.h"

#include <fmt/format.h>

#include <charconv>
#include <vector>

namespace headrace::detail {
namespace {

struct Dtype {
  std::string_view name;
  std::uint64_t size_bytes;
};
constexpr Dtype kDtypes[] = {{"uint8", 1},   {"uint16", 2},  {"uint32", 4}, {"uint64", 8},
                             {"int8", 1},    {"int16", 2},   {"int32", 4},  {"int64", 8},
                             {"float16", 2}, {"float32", 4}, {"float64", 8}};

// "d0,d1,..." with every extent at least 1 and a product below 2^32 (a shard is smaller than that).
std::optional<std::vector<std::uint64_t>> parse_shape(std::string_view text) {
  std::vector<std::uint64_t> shape;
  std::uint64_t product = 1;
  while (true) {
    std::uint64_t extent = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), extent);
    if (error != std::errc() || extent == 0 || extent > 0xffff'ffffULL) return std::nullopt;
    product *= extent;
    if (product > 0xffff'ffffULL) return std::nullopt;
    shape.push_back(extent);
    text.remove_prefix(static_cast<std::size_t>(end - text.data()));
    if (text.empty()) return shape;
    if (text.front() != ',') return std::nullopt;
    text.remove_prefix(1);
  }
}

}  // namespace

std::optional<std::uint64_t> dtype_size_bytes(std::string_view name) {
  for (const Dtype& dtype : kDtypes) {
    if (dtype.name == name) return dtype.size_bytes;
  }
  return std::nullopt;
}

Status describe_mds_column(Column& column, bool allow_unsafe) {
  const std::string_view encoding = column.encoding;
  if (encoding == "pkl" && !allow_unsafe) {
    return Status(Code::kUnsupported,
                  fmt::format("column '{}' is pickled (encoding pkl), which can run any code when "
                              "decoded; allow_unsafe lets it through",
                              column.name));
  }
  std::string_view dtype = encoding == "int" ? "int64" : encoding;
  std::vector<std::uint64_t> shape;
  std::uint64_t values = 1;
  constexpr std::string_view kArray = "ndarray:";
  if (encoding.starts_with(kArray)) {
    const std::string_view rest = encoding.substr(kArray.size());
    const std::size_t colon = rest.find(':');
    if (colon == std::string_view::npos)
      return Status();  // Shape varies: dtype and shape are in each value.
    dtype = rest.substr(0, colon);
    auto parsed = parse_shape(rest.substr(colon + 1));
    if (!parsed) {
      return Status(Code::kCorrupt,
                    fmt::format("column '{}': bad shape in encoding '{}'", column.name, encoding));
    }
    shape = *std::move(parsed);
    for (const std::uint64_t extent : shape) values *= extent;
  }
  const auto item_bytes = dtype_size_bytes(dtype);
  if (!item_bytes) return Status();
  if (column.fixed_size_bytes != values * *item_bytes) {
    return Status(
        Code::kCorrupt,
        fmt::format("column '{}': encoding '{}' has {} bytes, the index says {}", column.name,
                    encoding, values * *item_bytes, column.fixed_size_bytes));
  }
  column.dtype = dtype;
  column.shape = std::move(shape);
  return Status();
}

}  // namespace headrace::detail
