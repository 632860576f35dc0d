#include <algorithm>
#include <cmath>
#include <optional>

#include "headrace/order.h"

namespace headrace {
namespace {

/// Looks up places in order and keeps the last window of each lane, so that most of them cost no
/// search.
class PlaceReader {
 public:
  PlaceReader(const EpochOrder& order, const Segment& segment)
      : order_(order), segment_(segment), windows_(order.spec().lane_count) {}

  struct Place {
    std::uint64_t dataset_position = 0;
    std::uint32_t block = 0;
  };
  Place at(std::uint64_t t) {
    const LanePosition place = order_.locate(t, segment_);
    Window& window = windows_[place.lane];
    if (place.position - window.first_position >= window.sample_count) {
      window = order_.window_at(place.lane, place.position);
    }
    const WindowSample sample = order_.sample_at(window, place.position);
    const std::uint32_t block = window.pieces[sample.piece].block;
    return {order_.block_first_sample(block) + sample.sample_in_block, block};
  }

 private:
  const EpochOrder& order_;
  Segment segment_;
  std::vector<Window> windows_;
};

/// Sums over pairs (x, y) for Pearson's correlation and the mean |x - y|.
struct PairSums {
  double count = 0, x = 0, y = 0, xx = 0, yy = 0, xy = 0, jump = 0;

  void add(double a, double b) {
    count += 1;
    x += a;
    y += b;
    xx += a * a;
    yy += b * b;
    xy += a * b;
    jump += std::abs(a - b);
  }
  double correlation() const {
    const double covariance = count * xy - x * y;
    const double variances = (count * xx - x * x) * (count * yy - y * y);
    return variances > 0 ? covariance / std::sqrt(variances) : 0;
  }
};

}  // namespace

OrderQuality measure_quality(const EpochOrder& order, const Segment& segment,
                             std::uint64_t probe_count) {
  const std::uint64_t total = order.sample_count();
  const double scale = static_cast<double>(total);
  OrderQuality quality;
  quality.mean_jump_full = (scale + 1) / 3;
  if (segment.start >= total || segment.global_batch == 0) return quality;

  const std::uint64_t left = total - segment.start;
  const std::uint64_t batch = std::min(segment.global_batch, left);
  const std::uint64_t batches = left / batch;
  const std::uint64_t probed = std::clamp<std::uint64_t>(probe_count / batch, 1, batches);
  PlaceReader reader(order, segment);
  PairSums pairs;
  double displacement = 0;
  double distinct_blocks = 0;
  std::vector<std::uint32_t> blocks;
  for (std::uint64_t i = 0; i < probed; ++i) {
    // Batches spread evenly over the epoch; the pair that leads into the next batch counts as well.
    const std::uint64_t first = segment.start + i * batches / probed * batch;
    blocks.clear();
    std::optional<double> previous;
    for (std::uint64_t t = first; t < std::min(first + batch + 1, total); ++t) {
      const auto place = reader.at(t);
      // Relative positions keep the squares small enough for exact enough sums at 10^9 samples.
      const double position = static_cast<double>(place.dataset_position) / scale;
      if (previous) pairs.add(*previous, position);
      previous = position;
      if (t == first + batch) break;
      displacement += std::abs(position - static_cast<double>(t) / scale);
      blocks.push_back(place.block);
    }
    std::sort(blocks.begin(), blocks.end());
    distinct_blocks +=
        static_cast<double>(std::unique(blocks.begin(), blocks.end()) - blocks.begin());
  }
  quality.mean_jump = pairs.count > 0 ? pairs.jump / pairs.count * scale : 0;
  quality.mean_displacement = displacement / static_cast<double>(probed * batch);
  quality.neighbour_correlation = pairs.correlation();
  quality.blocks_per_batch = distinct_blocks / static_cast<double>(probed);
  return quality;
}

}  // namespace headrace
