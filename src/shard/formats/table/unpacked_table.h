#pragma once
/// \file
/// UnpackedTable: columns that a TableUnpacker unpacked, copied batch by batch into the engine's
/// memory, and where each cell lies in them.
///
/// Place: what TableDataset::unpack() and LitData's Arrow chunks return as UnpackedBlock.
///
/// Arrays come validated by pyarrow (buffer sizes, last offsets); what that leaves open (offsets in
/// the middle) is checked at each cell. A cell is found in O(log batches).
///
/// Threads: immutable after TableBuilder::finish().
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

class UnpackedTable final : public UnpackedBlock {
 public:
  std::uint64_t row_count() const noexcept { return row_count_; }
  /// Cells of a row. \pre row < row_count(), out.size() == columns.size(). Errors: kCorrupt
  /// (offsets that do not rise).
  Status cut(std::uint64_t row, std::span<ColumnBytes> out) const;

  /// How one column of one batch is read.
  struct View {
    enum class Kind : std::uint8_t { kNull, kFixed, kBool, kBinary32, kBinary64, kList32, kList64 };
    Kind kind = Kind::kNull;
    bool is_flagged_list = false;   ///< Encoding "nullable_list:".
    std::uint32_t width_bytes = 0;  ///< Of a value, or of a list's item.
    std::uint32_t fixed_items = 0;  ///< Of a list that is delivered as a fixed array; else 0.
    const std::uint8_t* validity = nullptr;  ///< Null: all are there.
    std::int64_t offset = 0;                 ///< Of row 0, in values.
    /// Fixed, bool: from value 0 on. Binary, lists: from what `first_offset` points to on.
    const std::byte* values = nullptr;
    const void* offsets = nullptr;
    std::int64_t first_offset = 0;
    std::int64_t last_offset = 0;
    const std::uint8_t* item_validity = nullptr;  ///< Null: all items of lists are there.
    std::int64_t item_offset = 0;
  };

 private:
  friend class TableBuilder;
  /// Rows of columns that were unpacked together.
  struct Batch {
    std::uint64_t first_row = 0;
    std::vector<View> views;
  };
  struct Group {
    std::size_t first_column = 0;
    std::size_t column_count = 0;
    std::uint64_t row_count = 0;
    std::vector<Batch> batches;
  };
  static const Batch& batch_of(const Group& group, std::uint64_t row) noexcept;

  std::vector<Group> groups_;  ///< By first column; together all that are unpacked.
  std::vector<ConstantCell> constants_;
  std::uint64_t row_count_ = 0;
};

/// Makes a UnpackedTable of batches. One owner.
class TableBuilder final : public TableSink {
 public:
  /// Unpacked columns are the first of `columns`, in order, and `constants` are the rest. `columns`
  /// and `arena` must outlive it, and `arena` what it makes.
  TableBuilder(std::span<const Column> columns, std::vector<ConstantCell> constants,
               SlabArena& arena);
  /// Copies what the array holds of its columns. Errors: kCorrupt (columns of other types than
  /// `columns` say), kUnsupported, those of SlabArena::take().
  Status take(std::size_t first_column, const ArrowSchema& schema,
              const ArrowArray& array) override;
  /// Errors: kCorrupt (columns that are missing, or of different lengths).
  Result<std::shared_ptr<const UnpackedTable>> finish();

 private:
  Status copy(UnpackedTable::View& view, std::int64_t row_count);
  Result<const std::byte*> copy(const void* from, std::size_t size_bytes);

  const std::span<const Column> columns_;
  const std::size_t unpacked_count_;
  SlabArena& arena_;
  std::shared_ptr<UnpackedTable> table_;
};

}  // namespace headrace::detail
