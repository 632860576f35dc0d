// What is kept is two tables over the blocks, 20 bytes a block: where each begins in the dataset,
// and, if shuffled, which block is where in the line. All else is computed from t by each call; so
// any sample of any epoch is found without going through those before it.
//
// Invariants (proofs in docs/design/0003-order.md):
// - Wherever a batch begins, at t, lane l has given its first t / C positions, and one more if l <
//   t mod C. locate() keeps this and lane_consumed() says it; a state is only t because of it.
// - Whether slots go round robin or in bundles is decided by the segment and t alone, never by the
//   number of ranks: every world sees the same batches.
// - docs/order.md defines the results, with test vectors. Another result for any input is another
//   version of the order, not a fix.
#include <algorithm>
#include <limits>
#include <string>

#include "base/check.h"
#include "headrace/order.h"
#include "order/order_math.h"

namespace headrace {
namespace {

using order_math::Permutation;

constexpr std::uint64_t kMaxBlocks = std::numeric_limits<std::uint32_t>::max();

std::string number(std::uint64_t value) { return std::to_string(value); }

/// Checks everything that does not need the prefix sums.
Status check_spec(const OrderSpec& spec, std::span<const std::uint32_t> block_samples) {
  if (spec.id != "headrace" && spec.id != "sequential") {
    return Status(Code::kUnsupported,
                  "order '" + spec.id + "': this build knows headrace, sequential");
  }
  if (spec.version != 1) {
    return Status(Code::kUnsupported, "order '" + spec.id + "' version " + number(spec.version) +
                                          ": this build knows version 1");
  }
  if (block_samples.empty()) return Status(Code::kInvalidArgument, "order: no blocks");
  if (block_samples.size() > kMaxBlocks) {
    return Status(Code::kInvalidArgument, "order: more than 2^32 - 1 blocks");
  }
  const auto empty = std::find(block_samples.begin(), block_samples.end(), 0U);
  if (empty != block_samples.end()) {
    const auto index = static_cast<std::uint64_t>(empty - block_samples.begin());
    return Status(Code::kInvalidArgument, "order: block " + number(index) + " has no samples");
  }
  if (spec.lane_count == 0 || spec.window_blocks == 0 || spec.bundle_lanes == 0) {
    return Status(Code::kInvalidArgument,
                  "order: lane_count, window_blocks and bundle_lanes must be at least 1");
  }
  if (spec.lane_count % spec.bundle_lanes != 0) {
    return Status(Code::kInvalidArgument, "order: bundle_lanes " + number(spec.bundle_lanes) +
                                              " does not divide lane_count " +
                                              number(spec.lane_count));
  }
  if (spec.id == "sequential" && (spec.lane_count != 1 || spec.window_blocks != 1)) {
    return Status(Code::kInvalidArgument,
                  "order: sequential has one lane and windows of one block");
  }
  if (spec.block_table_digest != block_table_digest(block_samples)) {
    return Status(Code::kInvalidArgument,
                  "order: the block table is not the one this order was made for (digest differs)");
  }
  return {};
}

class EpochOrderImpl final : public LaneOrder {
 public:
  EpochOrderImpl(OrderSpec spec, std::span<const std::uint32_t> block_samples, std::uint64_t epoch)
      : spec_(std::move(spec)),
        epoch_(epoch),
        shuffled_(spec_.id == "headrace"),
        epoch_key_(order_math::epoch_key(spec_.seed, epoch)) {
    const std::size_t count = block_samples.size();
    block_first_.resize(count + 1);
    for (std::size_t i = 0; i < count; ++i)
      block_first_[i + 1] = block_first_[i] + block_samples[i];
    sample_count_ = block_first_.back();
    if (!shuffled_) return;
    const Permutation permutation(order_math::block_key(epoch_key_), count);
    line_block_.resize(count);
    line_first_.resize(count + 1);
    for (std::size_t i = 0; i < count; ++i) {
      const auto block = static_cast<std::uint32_t>(permutation(i));
      line_block_[i] = block;
      line_first_[i + 1] = line_first_[i] + block_samples[block];
    }
  }

  const OrderSpec& spec() const noexcept override { return spec_; }
  std::uint64_t epoch() const noexcept override { return epoch_; }
  std::uint64_t sample_count() const noexcept override { return sample_count_; }

  LanePosition locate(std::uint64_t t, const Segment& segment) const override {
    HEADRACE_DCHECK(segment.start <= t && t < sample_count_ && segment.global_batch >= 1);
    const std::uint64_t lanes = spec_.lane_count;
    const std::uint64_t global_batch = segment.global_batch;
    // Bundles take equally much of every lane. The batch that the epoch's end cuts short cannot,
    // nor can batches or starts that the lanes do not divide.
    if (t >= segment.full_end(sample_count_) || !is_aligned(segment)) {
      return {.lane = static_cast<std::uint32_t>(t % lanes), .position = t / lanes};
    }
    const std::uint64_t width = spec_.bundle_lanes;
    const std::uint64_t rows = global_batch / lanes;  // Samples a lane gives to each batch.
    const std::uint64_t batch = (t - segment.start) / global_batch;
    const std::uint64_t slot = (t - segment.start) % global_batch;
    const std::uint64_t bundle_slots = width * rows;
    const std::uint64_t in_bundle = slot % bundle_slots;
    return {.lane = static_cast<std::uint32_t>(slot / bundle_slots * width + in_bundle % width),
            .position = segment.start / lanes + batch * rows + in_bundle / width};
  }

  std::uint64_t global_sample(std::uint32_t lane, std::uint64_t position,
                              const Segment& segment) const override {
    HEADRACE_DCHECK(lane < spec_.lane_count);
    const std::uint64_t lanes = spec_.lane_count;
    const std::uint64_t in_turn = position * lanes + lane;
    if (!is_aligned(segment) || in_turn < segment.start ||
        in_turn >= segment.full_end(sample_count_))
      return in_turn;
    const std::uint64_t width = spec_.bundle_lanes;
    const std::uint64_t rows = segment.global_batch / lanes;
    const std::uint64_t row = position - segment.start / lanes;
    return segment.start + row / rows * segment.global_batch + lane / width * (width * rows) +
           row % rows * width + lane % width;
  }

  std::uint64_t lane_length(std::uint32_t lane) const override {
    HEADRACE_DCHECK(lane < spec_.lane_count);
    return sample_count_ / spec_.lane_count + (lane < sample_count_ % spec_.lane_count ? 1 : 0);
  }

  std::uint64_t lane_consumed(std::uint32_t lane, std::uint64_t t) const override {
    HEADRACE_DCHECK(lane < spec_.lane_count && t <= sample_count_);
    return t / spec_.lane_count + (lane < t % spec_.lane_count ? 1 : 0);
  }

  Window window_at(std::uint32_t lane, std::uint64_t position) const override {
    HEADRACE_DCHECK(position < lane_length(lane));
    const std::uint64_t begin = lane_begin(lane);
    const std::uint64_t end = begin + lane_length(lane);
    const std::size_t lane_first = line_index(begin);
    const auto [first, last] = window_blocks(lane, line_index(begin + position) - lane_first);
    const std::uint64_t window_begin = std::max(begin, line_first()[lane_first + first]);
    Window window;
    window.is_shuffled = shuffled_;
    window.first_position = window_begin - begin;
    for (std::size_t i = lane_first + first; i < lane_first + last; ++i) {
      if (i == block_count() || line_first()[i] >= end) break;
      const std::uint64_t piece_begin = std::max(begin, line_first()[i]);
      const std::uint64_t piece_end = std::min(end, line_first()[i + 1]);
      window.pieces.push_back({.block = block_at(i),
                               .begin = static_cast<std::uint32_t>(piece_begin - line_first()[i]),
                               .end = static_cast<std::uint32_t>(piece_end - line_first()[i])});
      window.sample_count = piece_end - window_begin;
    }
    window.shuffled_count = window.sample_count;
    if (shuffled_) window.key = order_math::window_key(epoch_key_, lane, window.first_position);
    return window;
  }

  WindowSample sample_at(const Window& window, std::uint64_t position) const override {
    HEADRACE_DCHECK(position - window.first_position < window.sample_count);
    std::uint64_t index = position - window.first_position;
    if (shuffled_) index = Permutation(window.key, window.shuffled_count)(index);
    return order_math::sample_of_index(window, index);
  }

  std::uint64_t block_first_sample(std::uint32_t block) const override {
    HEADRACE_DCHECK(block < block_count());
    return block_first_[block];
  }

  std::uint64_t largest_window_weight(std::span<const std::uint64_t> block_bytes) const override {
    HEADRACE_DCHECK(block_bytes.size() == block_count());
    std::uint64_t largest = 0;
    for (std::uint32_t lane = 0; lane < spec_.lane_count; ++lane) {
      const std::size_t lane_first = line_index(lane_begin(lane));
      const std::size_t pieces =
          line_index(lane_begin(lane) + lane_length(lane) - 1) - lane_first + 1;
      for (std::size_t piece = 0; piece < pieces;) {
        const std::size_t last = std::min(pieces, window_blocks(lane, piece).second);
        std::uint64_t weight = 0;
        for (; piece < last; ++piece) weight += block_bytes[block_at(lane_first + piece)];
        largest = std::max(largest, weight);
      }
    }
    return largest;
  }

 private:
  /// Whether each batch takes equally many samples of every lane, in bundles of lanes; else lanes
  /// take turns sample by sample.
  bool is_aligned(const Segment& segment) const noexcept {
    return segment.global_batch % spec_.lane_count == 0 && segment.start % spec_.lane_count == 0;
  }
  std::size_t block_count() const noexcept { return block_first_.size() - 1; }
  /// Line position of the i-th block of the line; block_count() + 1 entries. The line of
  /// "sequential" is the dataset.
  const std::vector<std::uint64_t>& line_first() const noexcept {
    return shuffled_ ? line_first_ : block_first_;
  }
  std::uint32_t block_at(std::size_t line_index) const noexcept {
    return shuffled_ ? line_block_[line_index] : static_cast<std::uint32_t>(line_index);
  }
  /// Index in the line of the block that holds a line position.
  std::size_t line_index(std::uint64_t line_position) const noexcept {
    const auto& first = line_first();
    return static_cast<std::size_t>(std::upper_bound(first.begin(), first.end(), line_position) -
                                    first.begin()) -
           1;
  }
  std::uint64_t lane_begin(std::uint32_t lane) const noexcept {
    const std::uint64_t lanes = spec_.lane_count;
    return lane * (sample_count_ / lanes) + std::min<std::uint64_t>(lane, sample_count_ % lanes);
  }
  /// Pieces [first, second) of the window that holds the lane's piece number `piece`, not yet cut
  /// at the lane's end.
  std::pair<std::size_t, std::size_t> window_blocks(std::uint32_t lane,
                                                    std::size_t piece) const noexcept {
    // The first windows have 1 to W pieces, by the lane: so lanes do not all change windows at
    // once, and memory holds 1.5 windows a lane on average instead of two.
    const std::size_t width = spec_.window_blocks;
    const std::size_t first_width = 1 + lane % width;
    if (piece < first_width) return {0, first_width};
    const std::size_t first = piece - (piece - first_width) % width;
    return {first, first + width};
  }

  OrderSpec spec_;
  std::uint64_t epoch_;
  bool shuffled_;
  std::uint64_t epoch_key_;
  std::uint64_t sample_count_ = 0;
  std::vector<std::uint64_t> block_first_;  ///< Dataset position of each block, and N.
  std::vector<std::uint32_t> line_block_;   ///< Blocks in line order; empty for "sequential".
  std::vector<std::uint64_t>
      line_first_;  ///< Line position of each of them, and N; empty for "sequential".
};

}  // namespace

Result<std::shared_ptr<const LaneOrder>> EpochOrder::create(
    const OrderSpec& spec, std::span<const std::uint32_t> block_samples, std::uint64_t epoch) {
  HEADRACE_TRY(check_spec(spec, block_samples));
  auto order = std::make_shared<const EpochOrderImpl>(spec, block_samples, epoch);
  if (spec.lane_count > order->sample_count()) {
    return Status(Code::kInvalidArgument, "order: " + number(spec.lane_count) + " lanes for " +
                                              number(order->sample_count()) + " samples");
  }
  return std::shared_ptr<const LaneOrder>(std::move(order));
}

BlockSample EpochOrder::find(const LanePosition& place) const {
  const Window window = window_at(place.lane, place.position);
  const WindowSample sample = sample_at(window, place.position);
  return {.block = window.pieces[sample.piece].block, .index = sample.sample_in_block};
}

std::uint64_t EpochOrder::dataset_position(std::uint64_t t, const Segment& segment) const {
  const BlockSample sample = find(locate(t, segment));
  return block_first_sample(sample.block) + sample.index;
}

std::uint64_t block_table_digest(std::span<const std::uint32_t> block_samples) noexcept {
  std::uint64_t digest = order_math::mix(block_samples.size() + order_math::kGolden);
  for (const std::uint32_t count : block_samples) digest = order_math::mix(digest + count);
  return digest;
}

}  // namespace headrace
