#pragma once
/// \file
/// Bytes of MDS shards: the table of offsets in front, and the columns inside a sample. Pure.
///
/// Threads: MdsLayout is immutable.
#include <cstdint>
#include <span>
#include <vector>

#include "headrace/dataset.h"

namespace headrace::detail {

/// Bytes in front of a shard that hold its sample count and offsets.
constexpr std::uint64_t mds_table_bytes(std::uint64_t sample_count) noexcept {
  return 4 + 4 * (sample_count + 1);
}

/// Appends the offsets that begin in `piece`, bytes [offset, offset + piece.size()) of the table;
/// both multiples of 4.
void append_mds_offsets(std::span<const std::byte> piece, std::uint64_t offset,
                        std::vector<std::uint64_t>& out);

/// Checks a whole table against what the index says. Errors: kCorrupt.
Status check_mds_offsets(std::span<const std::uint64_t> offsets, std::uint64_t raw_bytes);

/// The same for the offsets of a split shard's lines, which may begin anywhere. Errors: kCorrupt.
Status check_line_offsets(std::span<const std::uint64_t> offsets, std::uint64_t raw_bytes);

/// Finds sample `index` in a whole raw shard. Errors: kCorrupt.
Result<std::span<const std::byte>> mds_sample(std::span<const std::byte> shard,
                                              std::uint64_t sample_count, std::uint64_t index);

/// Where the columns of a sample are.
class MdsLayout {
 public:
  explicit MdsLayout(const std::vector<Column>& columns);

  /// True when all columns are of fixed size: then each sample has sample_bytes() bytes.
  bool is_fixed() const noexcept { return variable_count_ == 0; }
  std::uint64_t sample_bytes() const noexcept { return fixed_bytes_; }

  /// Fills `out` (one entry a column) with views into `sample`; false when the sizes do not add up
  /// to the sample.
  bool cut(std::span<const std::byte> sample, std::span<ColumnBytes> out) const noexcept;
  /// The same for a layout of fixed columns, with nothing to check. \pre is_fixed(), sample_bytes()
  /// bytes at `sample`.
  void cut_fixed(const std::byte* sample, std::span<ColumnBytes> out) const noexcept;

 private:
  struct Place {
    std::uint64_t size_bytes = 0;    // 0: varies.
    std::uint64_t offset_bytes = 0;  // In the sample, when all columns are fixed.
  };
  std::vector<Place> places_;
  std::uint64_t fixed_bytes_ = 0;
  std::size_t variable_count_ = 0;
};

}  // namespace headrace::detail
