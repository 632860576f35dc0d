#pragma once
/// \file
/// DecodedTable: record batches that a TableDecoder made, and where each cell lies in their
/// buffers.
///
/// Place: what TableDataset::decode() and LitData's Arrow chunks return as DecodedBlock.
///
/// Arrays come validated by pyarrow (buffer sizes, last offsets); what that leaves open (offsets in
/// the middle) is checked at each cell. A cell is found in O(1).
///
/// Threads: immutable after from_stream().
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "headrace/dataset.h"
#include "headrace/table.h"

namespace headrace::detail {

/// What the value of a column is that every row of a block shares (a Hive partition).
struct ConstantCell {
  std::string value;
  bool present = false;
};

class DecodedTable final : public DecodedBlock {
 public:
  /// Takes all batches of `stream`; its columns are the first of `columns`, in order, and
  /// `constants` are the rest. Errors: kCorrupt (the stream's error, or columns of other types
  /// than `columns` say).
  static Result<std::shared_ptr<const DecodedTable>> from_stream(
      ArrowOwned<ArrowArrayStream> stream, std::span<const Column> columns,
      std::vector<ConstantCell> constants);

  std::uint64_t row_count() const noexcept { return row_count_; }
  /// Cells of a row. \pre row < row_count(), out.size() == columns.size(). Errors: kCorrupt
  /// (offsets that do not rise).
  Status cut(std::uint64_t row, std::span<ColumnBytes> out) const;

  /// How one column of one batch is read.
  struct View {
    enum class Kind : std::uint8_t { kNull, kFixed, kBool, kBinary32, kBinary64, kList32, kList64 };
    Kind kind = Kind::kNull;
    bool is_flagged_list = false;   ///< Encoding "nullable_list:".
    bool is_masked_list = false;    ///< List items have a validity bitmap with nulls in it.
    std::uint32_t width_bytes = 0;  ///< Of a value, or of a list's item.
    std::uint32_t fixed_items = 0;  ///< Of a list that is delivered as a fixed array; else 0.
    const std::uint8_t* validity = nullptr;  ///< Null: all are there.
    std::int64_t offset = 0;                 ///< Of row 0, in values.
    const std::byte* values = nullptr;  ///< Fixed, bool, binary; a list's items from item 0 on.
    const void* offsets = nullptr;
    std::int64_t last_offset = 0;
    const std::uint8_t* item_validity = nullptr;
    std::int64_t item_offset = 0;
  };

 private:
  struct Batch {
    ArrowOwned<ArrowArray> array;
    std::uint64_t first_row = 0;
    std::vector<View> views;
  };
  const Batch& batch_of(std::uint64_t row) const noexcept;

  std::vector<Batch> batches_;
  std::vector<ConstantCell> constants_;
  std::uint64_t row_count_ = 0;
};

}  // namespace headrace::detail
