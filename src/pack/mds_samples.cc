// MDS: u32 sizes of the columns without a fixed size, then the values.
#include <algorithm>

#include "base/strings.h"
#include "pack/json_text.h"
#include "pack/sample_format.h"

namespace headrace::pack_detail {
namespace {

using Kind = CellType::Kind;
using nlohmann::json;

constexpr const char* kNoElements = "MDS has no arrays without elements";

std::string join_shape(std::span<const std::uint64_t> shape) {
  std::string out;
  for (const std::uint64_t dim : shape) out += (out.empty() ? "" : ",") + std::to_string(dim);
  return out;
}

/// Name of the MDS encoding that a column gets.
std::string mds_encoding(const CellType& type) {
  switch (type.kind) {
    case Kind::kBytes:
    case Kind::kMds:
      return type.encoding;
    case Kind::kStr:
      return "str";
    case Kind::kJson:
      return "json";
    case Kind::kAsciiInt:
      return "int";
    case Kind::kNumber:
      if (type.encoding == "int") return "int";
      return type.dtype->kind == Dtype::Kind::kBool ? "uint8" : std::string(type.dtype->name);
    case Kind::kArray:
    case Kind::kFlat:
    case Kind::kMdsTyped:
      break;
  }
  const bool is_bool = type.dtype->kind == Dtype::Kind::kBool;
  const std::string name = "ndarray:" + std::string(is_bool ? "uint8" : type.dtype->name);
  return type.kind == Kind::kArray ? name + ":" + join_shape(type.shape) : name;
}

/// 0: varies.
std::uint64_t fixed_bytes(const CellType& type) {
  if (type.kind == Kind::kAsciiInt) return 8;
  if (type.kind != Kind::kNumber && type.kind != Kind::kArray) return 0;
  std::uint64_t bytes = type.dtype->size_bytes;
  for (const std::uint64_t dim : type.shape) bytes *= dim;
  return bytes;
}

/// Shape byte and dimensions in the fewest bytes that hold the largest.
void append_shape(std::vector<std::byte>& out, std::span<const std::uint64_t> shape) {
  const std::uint64_t largest = *std::max_element(shape.begin(), shape.end());
  const unsigned log = largest < 1U << 8 ? 0 : largest < 1U << 16 ? 1 : largest >> 32 == 0 ? 2 : 3;
  out.push_back(static_cast<std::byte>(shape.size() << 2 | log));
  for (std::uint64_t dim : shape) {
    for (unsigned b = 0; b < 1U << log; ++b, dim >>= 8)
      out.push_back(static_cast<std::byte>(dim & 255));
  }
}

class MdsFormat final : public SampleFormat {
 public:
  MdsFormat(Columns columns, const ShardFormat& format) : columns_(std::move(columns)) {
    json names = json::array();
    json encodings = json::array();
    json sizes = json::array();
    for (const TargetColumn& column : columns_) {
      names.push_back(column.name);
      encodings.push_back(column.encoding.empty() ? mds_encoding(column.type) : column.encoding);
      const std::uint64_t bytes = fixed_bytes(column.type);
      sizes.push_back(bytes == 0 ? json() : json(bytes));
      fixed_.push_back(bytes);
    }
    config_ = {{"column_encodings", encodings},
               {"column_names", names},
               {"column_sizes", sizes},
               {"compression", format.compression.empty() ? json() : json(format.compression)},
               {"format", "mds"},
               {"hashes", format.hash.empty() ? json::array() : json::array({format.hash})},
               {"size_limit", format.shard_bytes},
               {"version", 2}};
    config_text_ = python_json(config_);
  }

  Status append(std::span<const std::span<const std::byte>> cells, std::uint64_t,
                std::vector<std::byte>& out) override {
    const std::size_t sizes = out.size();
    for (const std::uint64_t bytes : fixed_) {
      // Room: sizes are known once the values are written.
      if (bytes == 0) append_u32(out, 0);
    }
    std::size_t at = sizes;
    for (std::size_t i = 0; i < columns_.size(); ++i) {
      const TargetColumn& column = columns_[i];
      const auto cell = cells[column.cell];
      if (cell.data() == nullptr)
        return in_column(column, Status(Code::kInvalidArgument, "MDS cannot leave a value out"));
      const std::size_t begin = out.size();
      Status status = append_value(column.type, cell, out);
      if (!status.ok()) return in_column(column, std::move(status));
      const std::uint64_t bytes = out.size() - begin;
      if (fixed_[i] == 0) {
        store(out, at, bytes);
        at += 4;
      } else if (bytes != fixed_[i]) {
        return in_column(column, Status(Code::kInvalidArgument,
                                        "a value of " + std::to_string(bytes) +
                                            " bytes, all have " + std::to_string(fixed_[i])));
      }
    }
    return {};
  }
  std::string head(std::span<const std::uint64_t> ends) const override {
    return offsets_head(ends, config_text_);
  }
  std::uint64_t frame_bytes(std::uint64_t count) const override {
    return 4 + 4 * (count + 1) + config_text_.size();
  }
  const Columns& columns() const override { return columns_; }
  json config() const override { return config_; }

 private:
  static void store(std::vector<std::byte>& out, std::size_t at, std::uint64_t value) {
    for (std::size_t b = 0; b < 4; ++b, value >>= 8)
      out[at + b] = static_cast<std::byte>(value & 255);
  }
  static Status append_value(const CellType& type, std::span<const std::byte> cell,
                             std::vector<std::byte>& out) {
    if (type.kind == Kind::kAsciiInt) {
      HEADRACE_TRY_ASSIGN(const std::int64_t value, parse_cell_integer(cell));
      append_u32(out, static_cast<std::uint64_t>(value) & UINT32_MAX);
      append_u32(out, static_cast<std::uint64_t>(value) >> 32);
      return {};
    }
    if (type.kind == Kind::kFlat || type.kind == Kind::kMds || type.kind == Kind::kMdsTyped) {
      HEADRACE_TRY_ASSIGN(const ArrayView view, type.array_of(cell));
      if (view.data.empty()) return Status(Code::kInvalidArgument, kNoElements);
      if (type.kind == Kind::kFlat) append_shape(out, view.shape);
    }
    append_bytes(out, cell);
    return {};
  }

  Columns columns_;
  std::vector<std::uint64_t> fixed_;  ///< One a column; 0: varies.
  json config_;
  std::string config_text_;
};

}  // namespace

Result<std::unique_ptr<SampleFormat>> make_mds_format(Columns columns, const ShardFormat& format) {
  for (const TargetColumn& column : columns) {
    const auto& shape = column.type.shape;
    if (std::find(shape.begin(), shape.end(), 0) == shape.end()) continue;
    return in_column(column, Status(Code::kInvalidArgument, kNoElements));
  }
  // MDSWriter sorts, and readers do not care.
  std::sort(columns.begin(), columns.end(),
            [](const TargetColumn& a, const TargetColumn& b) { return a.name < b.name; });
  return std::unique_ptr<SampleFormat>(std::make_unique<MdsFormat>(std::move(columns), format));
}

}  // namespace headrace::pack_detail
