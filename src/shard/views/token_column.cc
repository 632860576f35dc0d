#include "shard/views/token_column.h"

#include <fmt/format.h>

#include <algorithm>

#include "shard/dataset/format_driver.h"

namespace headrace::detail {
namespace {

Status bad(std::string what) { return Status(Code::kInvalidArgument, std::move(what)); }

/// Bytes of an integer dtype; 0 for any other name.
std::uint32_t integer_bytes(std::string_view dtype) noexcept {
  constexpr std::string_view kNames[] = {"int8", "int16", "int32", "int64"};
  const std::string_view name = dtype.starts_with('u') ? dtype.substr(1) : dtype;
  for (std::uint32_t i = 0; i < std::size(kNames); ++i) {
    if (kNames[i] == name) return 1U << i;
  }
  return 0;
}

/// Bytes of the length in the header of an MDS array: the fewest of 1, 2, 4, 8 that hold it.
std::uint64_t length_bytes(std::uint64_t count) noexcept {
  return count < 1U << 8 ? 1 : count < 1U << 16 ? 2 : count < std::uint64_t{1} << 32 ? 4 : 8;
}

/// Bytes of a sample beside the values of varying size; nullopt where its size does not tell
/// theirs.
std::optional<std::uint64_t> overhead_of(const Dataset& dataset, std::size_t index) {
  const std::vector<Column>& columns = dataset.columns();
  SampleShape shape{.column = columns[index].name, .column_count = columns.size()};
  for (const Column& column : columns) {
    shape.fixed_bytes += column.fixed_size_bytes;
    shape.varying_count += column.fixed_size_bytes == 0 ? 1 : 0;
  }
  const FormatDriver* driver = driver_of(dataset.format());
  if (driver == nullptr || driver->overhead_bytes == nullptr) return std::nullopt;
  return driver->overhead_bytes(shape);
}

}  // namespace

Status TokenColumn::find_type(const Column& column, const PackTokensOptions& options) {
  const std::string_view encoding = column.encoding;
  constexpr std::string_view kShaped = "ndarray:";
  constexpr std::string_view kFlat = "array:";
  dtype_ = options.dtype;
  if (!column.dtype.empty() && column.shape.size() == 1) {
    dtype_ = column.dtype;
    fixed_tokens_ = column.shape[0];
  } else if (encoding.starts_with(kFlat)) {
    dtype_ = encoding.substr(kFlat.size());
  } else if (encoding.starts_with(kShaped) && encoding.size() > kShaped.size()) {
    dtype_ = encoding.substr(kShaped.size());
    header_ = Header::kShape;
  } else if (encoding == "ndarray" || encoding == "ndarray:") {
    header_ = Header::kTypeShape;
  } else if (encoding != "bytes") {
    return bad(
        fmt::format("column '{}' has the encoding '{}', which is no one-dimensional array of "
                    "tokens",
                    column.name, encoding));
  }
  if (dtype_.empty())
    return bad(
        fmt::format("column '{}' does not say what its tokens are: give dtype=", column.name));
  item_bytes_ = integer_bytes(dtype_);
  if (item_bytes_ == 0)
    return bad(fmt::format("column '{}': tokens are integers, not '{}'", column.name, dtype_));
  return {};
}

Result<TokenColumn> TokenColumn::create(const Dataset& dataset, const PackTokensOptions& options) {
  const std::vector<Column>& columns = dataset.columns();
  const auto found = std::find_if(columns.begin(), columns.end(),
                                  [&](const Column& c) { return c.name == options.column; });
  if (found == columns.end()) {
    std::string names;
    for (const Column& column : columns) names += (names.empty() ? "" : ", ") + column.name;
    return bad(
        fmt::format("{} has no column '{}'; it has {}", dataset.url(), options.column, names));
  }
  TokenColumn column;
  column.index_ = static_cast<std::size_t>(found - columns.begin());
  HEADRACE_TRY(column.find_type(*found, options));
  if (column.fixed_tokens_ > 0) return column;
  const auto overhead = overhead_of(dataset, column.index_);
  if (!overhead) {
    return Status(Code::kUnsupported,
                  fmt::format("{}: the sizes of samples do not tell how long the documents in "
                              "column '{}' are: packing needs plain shards of MDS, LitData, token "
                              "or raw files where no other column varies in size",
                              dataset.url(), options.column));
  }
  column.overhead_bytes_ = *overhead;
  return column;
}

std::uint64_t TokenColumn::header_bytes(std::uint64_t count) const noexcept {
  if (header_ == Header::kNone) return 0;
  return (header_ == Header::kTypeShape ? 2 : 1) + length_bytes(count);
}

std::optional<std::uint32_t> TokenColumn::count_of(std::uint64_t sample_bytes) const noexcept {
  if (fixed_tokens_ > 0) return static_cast<std::uint32_t>(fixed_tokens_);
  if (sample_bytes < overhead_bytes_) return std::nullopt;
  const std::uint64_t value = sample_bytes - overhead_bytes_;
  // The header grows with the length: only one of its sizes fits.
  for (const std::uint64_t count :
       {std::uint64_t{0}, std::uint64_t{1} << 8, std::uint64_t{1} << 16}) {
    const std::uint64_t header = header_bytes(count);
    if (value < header || (value - header) % item_bytes_ != 0) continue;
    const std::uint64_t tokens = (value - header) / item_bytes_;
    if (tokens <= 0xffff'ffffU && header_bytes(tokens) == header)
      return static_cast<std::uint32_t>(tokens);
  }
  return std::nullopt;
}

std::optional<std::span<const std::byte>> TokenColumn::tokens_in(
    std::span<const std::byte> value, std::uint32_t count) const noexcept {
  const std::uint64_t header = fixed_tokens_ > 0 ? 0 : header_bytes(count);
  if (value.size() != header + std::uint64_t{count} * item_bytes_) return std::nullopt;
  if (header == 0) return value;
  std::size_t at = 0;
  if (header_ == Header::kTypeShape) {
    const std::uint32_t code = 8 * item_bytes_ + (is_signed() ? 1 : 0);
    if (value[at++] != std::byte{static_cast<std::uint8_t>(code)}) return std::nullopt;
  }
  const std::uint64_t width = length_bytes(count);
  const auto k = static_cast<std::uint8_t>(width == 1 ? 0 : width == 2 ? 1 : width == 4 ? 2 : 3);
  if (value[at++] != std::byte{static_cast<std::uint8_t>(1 << 2 | k)}) return std::nullopt;
  std::uint64_t length = 0;
  for (std::uint64_t b = width; b-- > 0;)
    length = length << 8 | static_cast<std::uint64_t>(value[at + b]);
  if (length != count) return std::nullopt;
  return value.subspan(header);
}

}  // namespace headrace::detail
