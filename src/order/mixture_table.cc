// A table is made once and then answers for any step of any period in the time of one binary
// search; so all that could be counted is counted here: the rank of each entry in its column, the
// rows of each source and column, and sums over the periods of one cycle of columns.
//
// Why interleave() keeps every prefix near the shares: credits sum to 0 after each place, and a
// source is served as soon as it is owed most. Smooth weighted round robin, as nginx balances its
// servers.
#include "order/mixture_table.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <numeric>

#include "order/order_math.h"

namespace headrace::order_detail {

std::vector<std::uint64_t> apportion(std::span<const std::uint64_t> weights, std::uint64_t total) {
  const std::uint64_t sum = std::accumulate(weights.begin(), weights.end(), std::uint64_t{0});
  std::vector<std::uint64_t> shares(weights.size());
  std::vector<std::uint64_t> rests(weights.size());
  std::uint64_t given = 0;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const auto product = static_cast<order_math::Wide>(weights[i]) * total;
    shares[i] = static_cast<std::uint64_t>(product / sum);
    rests[i] = static_cast<std::uint64_t>(product % sum);
    given += shares[i];
  }
  std::vector<std::size_t> by_rest(weights.size());
  std::iota(by_rest.begin(), by_rest.end(), std::size_t{0});
  std::stable_sort(by_rest.begin(), by_rest.end(),
                   [&](std::size_t a, std::size_t b) { return rests[a] > rests[b]; });
  for (std::size_t i = 0; given < total; ++i, ++given) ++shares[by_rest[i]];
  return shares;
}

std::vector<std::uint8_t> interleave(std::span<const std::uint64_t> shares) {
  const std::uint64_t total = std::accumulate(shares.begin(), shares.end(), std::uint64_t{0});
  std::vector<std::int64_t> credits(shares.size(), 0);
  std::vector<std::uint8_t> sequence(total);
  for (std::uint8_t& place : sequence) {
    std::size_t best = 0;
    for (std::size_t i = 0; i < shares.size(); ++i) {
      credits[i] += static_cast<std::int64_t>(shares[i]);
      if (credits[i] > credits[best]) best = i;
    }
    credits[best] -= static_cast<std::int64_t>(total);
    place = static_cast<std::uint8_t>(best);
  }
  return sequence;
}

MixtureTable::MixtureTable(std::span<const std::uint8_t> sequence, std::uint32_t source_count,
                           std::uint32_t columns, std::uint64_t stretch)
    : columns_(columns),
      columns_bits_(static_cast<std::uint32_t>(std::countr_zero(columns))),
      stretch_(stretch),
      row_count_((sequence.size() + columns - 1) / columns) {
  source_.assign(row_count_ * columns, static_cast<std::uint8_t>(kNoSource));
  rank_.assign(source_.size(), 0);
  rows_.resize(std::size_t{source_count} * columns);
  std::vector<std::uint64_t> totals(source_count, 0);
  for (const std::uint8_t source : sequence) ++totals[source];
  std::vector<std::uint8_t> row;
  for (std::uint64_t r = 0; r < row_count_; ++r) {
    const auto begin = static_cast<std::ptrdiff_t>(r * columns);
    const std::size_t width = std::min<std::size_t>(columns, sequence.size() - r * columns);
    row.assign(sequence.begin() + begin,
               sequence.begin() + begin + static_cast<std::ptrdiff_t>(width));
    // The rarest first: they have the fewest chances to come out even.
    std::sort(row.begin(), row.end(), [&](std::uint8_t a, std::uint8_t b) {
      return totals[a] != totals[b] ? totals[a] < totals[b] : a < b;
    });
    for (const std::uint8_t source : row) {
      std::uint32_t best = columns;
      for (std::uint32_t c = 0; c < width; ++c) {
        if (source_[r * columns + c] != kNoSource) continue;
        const auto had = [&](std::uint32_t column) { return rows_of(source, column).size(); };
        if (best == columns || had(c) < had(best)) best = c;
      }
      auto& rows = rows_[std::size_t{source} * columns + best];
      source_[r * columns + best] = source;
      rank_[r * columns + best] = static_cast<std::uint32_t>(rows.size());
      rows.push_back(static_cast<std::uint32_t>(r));
    }
  }
  before_.resize(rows_.size() * columns);
  totals_.resize(source_count);
  for (std::uint32_t i = 0; i < source_count; ++i) {
    for (std::uint32_t group = 0; group < columns; ++group) {
      std::uint64_t sum = 0;
      for (std::uint32_t m = 0; m < columns; ++m) {
        before_[(std::size_t{i} * columns + group) * columns + m] = sum;
        sum += rows_of(i, (group + m) % columns).size();
      }
      totals_[i] = sum;
    }
  }
}

std::span<const std::uint32_t> MixtureTable::rows_of(std::uint32_t source,
                                                     std::uint32_t column) const noexcept {
  return rows_[std::size_t{source} * columns_ + column];
}

std::uint64_t MixtureTable::count_of_periods(std::uint32_t source, std::uint32_t group,
                                             std::uint64_t periods) const noexcept {
  const std::uint64_t rest = periods & (columns_ - 1);
  // With one column all groups follow it.
  const std::size_t first = (std::size_t{source} * columns_ + (group & (columns_ - 1))) * columns_;
  return (periods >> columns_bits_) * totals_[source] + before_[first + rest];
}

MixtureTable::Place MixtureTable::place_of(std::uint32_t group, std::uint64_t step) const noexcept {
  Place place;
  if (stretch_ > 1) {
    place.rest = step % stretch_;
    step /= stretch_;
  }
  place.period = step / row_count_;
  place.row = step - place.period * row_count_;
  place.column = static_cast<std::uint32_t>((group + place.period) & (columns_ - 1));
  return place;
}

MixtureTable::Entry MixtureTable::at(std::uint32_t group, std::uint64_t step) const noexcept {
  const Place place = place_of(group, step);
  const std::size_t index = place.row * columns_ + place.column;
  const std::uint32_t source = source_[index];
  if (source == kNoSource) return {};
  const std::uint64_t before = count_of_periods(source, group, place.period) + rank_[index];
  return {.source = source, .number = before * stretch_ + place.rest};
}

std::uint64_t MixtureTable::count(std::uint32_t source, std::uint32_t group,
                                  std::uint64_t steps) const noexcept {
  const Place place = place_of(group, steps);
  const auto rows = rows_of(source, place.column);
  const auto found = std::lower_bound(rows.begin(), rows.end(), place.row);
  const auto before = static_cast<std::uint64_t>(found - rows.begin());
  // A step inside of a row's stretch: this part of the row has been given.
  const bool is_under_way = found != rows.end() && *found == place.row;
  return (count_of_periods(source, group, place.period) + before) * stretch_ +
         (is_under_way ? place.rest : 0);
}

std::uint64_t MixtureTable::step_of(std::uint32_t source, std::uint32_t group,
                                    std::uint64_t number) const noexcept {
  const std::uint64_t all = totals_[source];
  if (all == 0) return std::numeric_limits<std::uint64_t>::max();
  // Over columns_ periods every group has all of the source's rows once, `all` of them; what is
  // left lies in one of the next columns_ periods.
  std::uint64_t period = number / stretch_ / all * columns_;
  std::uint64_t rest = number / stretch_ % all;
  for (;; ++period) {
    const auto rows = rows_of(source, static_cast<std::uint32_t>((group + period) % columns_));
    if (rest < rows.size())
      return (period * row_count_ + rows[rest]) * stretch_ + number % stretch_;
    rest -= rows.size();
  }
}

}  // namespace headrace::order_detail
