// LitData, the layout that every release reads: u32 sizes of all leaves, then the leaves.
#include <array>
#include <bit>

#include "base/endian.h"
#include "pack/json_text.h"
#include "pack/sample_format.h"

namespace headrace::pack_detail {
namespace {

using Kind = CellType::Kind;
using nlohmann::json;

void append_u64(std::vector<std::byte>& out, std::uint64_t value) {
  std::array<std::byte, 8> bytes{};
  store_le(bytes.data(), value);
  append_bytes(out, bytes);
}

/// Name of the leaf in data_format.
std::string leaf_format(const CellType& type) {
  switch (type.kind) {
    case Kind::kBytes:
      return type.encoding == "jpeg" || type.encoding == "pil" ? type.encoding : "bytes";
    case Kind::kStr:
    case Kind::kJson:  // Releases before 0.2.74 know no leaf "json".
      return "str";
    case Kind::kAsciiInt:
      return "int";
    case Kind::kNumber:
      if (type.dtype->kind == Dtype::Kind::kBool) return "bool";
      return type.dtype->is_integer() ? "int" : "float";
    case Kind::kMds:
    case Kind::kMdsTyped:
      return "numpy";
    case Kind::kArray:
    case Kind::kFlat:
      break;
  }
  if (type.kind == Kind::kArray && type.shape.size() != 1) return "numpy";
  return "no_header_numpy:" + std::to_string(type.dtype->litdata_id);
}

Status append_leaf(const CellType& type, std::span<const std::byte> cell,
                   std::vector<std::byte>& out) {
  if (type.kind == Kind::kAsciiInt) {
    HEADRACE_TRY_ASSIGN(const std::int64_t value, parse_cell_integer(cell));
    append_u64(out, static_cast<std::uint64_t>(value));
    return {};
  }
  if (type.kind == Kind::kNumber) {
    if (cell.size() != type.dtype->size_bytes)
      return Status(Code::kCorrupt, "a number of another size");
    if (type.dtype->kind == Dtype::Kind::kBool) {
      append_bytes(out, cell);
    } else if (type.dtype->is_integer()) {
      HEADRACE_TRY_ASSIGN(const std::int64_t value, type.dtype->integer_at(cell.data()));
      append_u64(out, static_cast<std::uint64_t>(value));
    } else {
      append_u64(out, std::bit_cast<std::uint64_t>(type.dtype->real_at(cell.data())));
    }
    return {};
  }
  if (type.is_array()) {
    HEADRACE_TRY_ASSIGN(const ArrayView view, type.array_of(cell));
    if (leaf_format(type) == "numpy") {
      append_u32(out, view.dtype->litdata_id);
      append_u32(out, view.shape.size());
      for (const std::uint64_t dim : view.shape) append_u32(out, dim);
    }
    append_bytes(out, view.data);
    return {};
  }
  append_bytes(out, cell);
  return {};
}

class LitDataFormat final : public SampleFormat {
 public:
  LitDataFormat(Columns columns, const ShardFormat& format) : columns_(std::move(columns)) {
    json formats = json::array();
    json names = json::array();
    json leaves = json::array();
    for (const TargetColumn& column : columns_) {
      formats.push_back(leaf_format(column.type));
      names.push_back(column.name);
      leaves.push_back({{"type", nullptr}, {"context", nullptr}, {"children_spec", json::array()}});
    }
    // A pytree as torch.utils._pytree.treespec_dumps writes it.
    const json spec = json::array(
        {1,
         {{"type", "builtins.dict"}, {"context", python_json(names)}, {"children_spec", leaves}}});
    config_ = {{"chunk_bytes", format.shard_bytes},
               {"chunk_size", nullptr},
               {"compression", format.compression.empty() ? json() : json(format.compression)},
               {"data_format", formats},
               {"data_spec", python_json(spec)},
               {"encryption", nullptr},
               {"item_loader", "PyTreeLoader"}};
  }

  Status append(std::span<const std::span<const std::byte>> cells, std::uint64_t,
                std::vector<std::byte>& out) override {
    const std::size_t sizes = out.size();
    out.resize(out.size() + 4 * columns_.size());
    for (std::size_t i = 0; i < columns_.size(); ++i) {
      const TargetColumn& column = columns_[i];
      const auto cell = cells[column.cell];
      if (cell.data() == nullptr)
        return in_column(column,
                         Status(Code::kInvalidArgument, "LitData cannot leave a value out"));
      const std::size_t begin = out.size();
      Status status = append_leaf(column.type, cell, out);
      if (!status.ok()) return in_column(column, std::move(status));
      // Sizes stand before the values but are known after them. `out` may have moved meanwhile: by
      // offset, not by pointer.
      store_le(out.data() + sizes + 4 * i, static_cast<std::uint32_t>(out.size() - begin));
    }
    return {};
  }
  std::string head(std::span<const std::uint64_t> ends) const override {
    return offsets_head(ends, {});
  }
  std::uint64_t frame_bytes(std::uint64_t count) const override { return 4 + 4 * (count + 1); }
  const Columns& columns() const override { return columns_; }
  json config() const override { return config_; }

 private:
  Columns columns_;
  json config_;
};

}  // namespace

Result<std::unique_ptr<SampleFormat>> make_litdata_format(Columns columns,
                                                          const ShardFormat& format) {
  return std::unique_ptr<SampleFormat>(std::make_unique<LitDataFormat>(std::move(columns), format));
}

}  // namespace headrace::pack_detail
