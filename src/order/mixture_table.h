#pragma once
/// \file
/// MixtureTable: one period of a mixture's schedule, and counts over any number of periods. Pure.
///
/// Words: the table has *rows* of one entry a column; an entry names a source. There are P columns,
/// or one where all groups follow the same entries. Group g follows column (g + period) mod
/// columns, so that over `columns` periods all groups get the same. Each row stands for `stretch`
/// steps.
///
/// Place: docs/order.md, section "Mixtures"; used by mixture_schedule.cc. Immutable; any thread.
#include <cstdint>
#include <span>
#include <vector>

namespace headrace::order_detail {

/// MixtureTable::Entry::source of a place that is never reached.
inline constexpr std::uint32_t kNoSource = 0xff;

/// Shares of `total` in proportion to `weights`, by largest remainder; ties go to the lower index.
/// \pre a weight is above 0, and total * weight fits 63 bits.
std::vector<std::uint64_t> apportion(std::span<const std::uint64_t> weights, std::uint64_t total);

/// `shares[i]` times source i, each as evenly spread as it goes: at each place the source with the
/// highest credit, which then loses the total; all gain their share before. Ties: the lower index.
std::vector<std::uint8_t> interleave(std::span<const std::uint64_t> shares);

class MixtureTable {
 public:
  /// Lays `sequence` out in rows of `columns` (a power of two); inside a row each source goes to
  /// the column that had least of it. A last row that is not full is filled with kNoSource.
  MixtureTable(std::span<const std::uint8_t> sequence, std::uint32_t source_count,
               std::uint32_t columns, std::uint64_t stretch);

  struct Entry {
    std::uint32_t source = kNoSource;
    std::uint64_t number = 0;  ///< How many of the source the group had before.
  };
  /// Entry of `group` at `step`, counted from the start of the table's first period.
  Entry at(std::uint32_t group, std::uint64_t step) const noexcept;
  /// Entries of `source` among the first `steps` of `group`.
  std::uint64_t count(std::uint32_t source, std::uint32_t group,
                      std::uint64_t steps) const noexcept;
  /// Step of entry number `number` of `source` in `group`; max() when there is none.
  std::uint64_t step_of(std::uint32_t source, std::uint32_t group,
                        std::uint64_t number) const noexcept;
  /// Steps of one period.
  std::uint64_t period_steps() const noexcept { return row_count_ * stretch_; }

 private:
  std::span<const std::uint32_t> rows_of(std::uint32_t source, std::uint32_t column) const noexcept;
  /// A step as a place in the table, and the rest of its stretch.
  struct Place {
    std::uint64_t period = 0;
    std::uint64_t row = 0;
    std::uint64_t rest = 0;
    std::uint32_t column = 0;
  };
  Place place_of(std::uint32_t group, std::uint64_t step) const noexcept;
  std::uint64_t count_of_periods(std::uint32_t source, std::uint32_t group,
                                 std::uint64_t periods) const noexcept;

  const std::uint32_t columns_;  ///< A power of two.
  const std::uint32_t
      columns_bits_;  ///< Its logarithm: this is per sample, and divisions are slow.
  const std::uint64_t stretch_;
  std::uint64_t row_count_ = 0;
  std::vector<std::uint8_t> source_;  ///< By row * columns + column.
  std::vector<std::uint32_t> rank_;   ///< Of the entry among its source's in its column.
  std::vector<std::vector<std::uint32_t>> rows_;  ///< By source * columns + column, ascending.
  /// Entries of a source in the first m periods of a group, by (source * columns + group) * columns
  /// + m; and in one column after the other.
  std::vector<std::uint64_t> before_;
  std::vector<std::uint64_t> totals_;
};

}  // namespace headrace::order_detail
