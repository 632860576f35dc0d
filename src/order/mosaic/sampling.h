#pragma once
/// \file
/// Which samples of the shards an epoch takes: Mosaic's up- and down-sampling of streams.
///
/// Place: src/order/mosaic; pure. Definition: docs/order.md, "Sampling". The weights are in
/// headrace/mosaic_order.h.
#include <cstdint>
#include <span>
#include <vector>

#include "headrace/mosaic_order.h"
#include "order/numpy_random/generator.h"

namespace headrace::mosaic {

/// The samples of an epoch before it is shuffled, as runs of dataset positions. A *unit* is a whole
/// shard, or some samples of one; ids of the epoch count through the units.
class EpochSamples {
 public:
  /// Adds `choose` samples of the shard [first, first + samples). \pre samples < 2^32.
  void add_shard(std::uint64_t first, std::uint64_t samples, std::uint64_t choose,
                 numpy_random::Generator& rng);

  std::uint64_t size() const noexcept { return size_; }
  const std::vector<std::uint64_t>& units() const noexcept { return units_; }
  /// True when id i is dataset position i + first_position() for all of them.
  bool is_identity() const noexcept { return is_identity_; }
  std::uint64_t first_position() const noexcept { return first_.empty() ? 0 : first_[0]; }

  /// Writes the dataset position of each id. \pre out.size() == size().
  template <class T>
  void write(std::span<T> out) const;

 private:
  std::uint64_t size_ = 0;
  bool is_identity_ = true;
  std::vector<std::uint64_t> units_;    // sizes
  std::vector<std::uint64_t> first_;    // dataset position of the unit's shard
  std::vector<std::uint64_t> partial_;  // for a partial unit 1 + where it begins in chosen_, else 0
  std::vector<std::uint32_t> chosen_;   // samples of partial units, counted within their shards
};

/// Settings of the sampling of one epoch.
struct SamplingSpec {
  std::uint64_t granularity = 1;
  std::uint64_t pick_seed = 0;    ///< Orders the picks of get_sampling().
  std::uint64_t choice_seed = 0;  ///< Draws samples within shards.
};

/// resample_streams() of some streams. `first_sample`: dataset position of each stream's first.
EpochSamples resample_streams(std::span<const MosaicStream> streams,
                              std::span<const std::uint64_t> choose,
                              std::span<const std::uint64_t> first_sample,
                              const SamplingSpec& spec);

/// numpy's sum of float64: pairwise, so the rounding is its own.
double pairwise_sum(std::span<const double> values) noexcept;

}  // namespace headrace::mosaic
