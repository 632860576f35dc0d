// A mixture looks to the feed like one dataset with more lanes. Everything here translates between
// the two numberings; the samples themselves are placed by the schedule and the sources' own
// orders.
//
// Invariants:
// - Lanes, blocks and samples of the sources follow each other, in the order of the parts. A
//   source that is added later comes last, so no number of the others changes.
// - Within a source, lane mod groups is the group: lane = first_lane + group + groups * j. Sample
//   k that a group has of a source comes from its lane j = k mod (lanes / groups).
// - Positions of a lane count on from epoch to epoch of its source; they never start anew while
//   the run lasts. Which epoch of the source it is, is computed from the position.
// - A group's slots of a batch are consecutive; ranks therefore read different lanes where they
//   divide the groups.
// - Everything is immutable but EpochCache, which makes orders again that it has dropped.
#include <algorithm>
#include <deque>
#include <limits>
#include <string>

#include "base/check.h"
#include "base/mutex.h"
#include "order/mean_readers.h"
#include "order/mixture_epochs.h"
#include "order/mixture_schedule.h"
#include "order/order_math.h"

namespace headrace {
namespace {

using order_detail::Schedule;

Status bad(std::string what) {
  return Status(Code::kInvalidArgument, "mixture: " + std::move(what));
}

/// Epoch orders of one source, made when they are first needed.
class EpochCache {
 public:
  EpochCache(const MixturePart& part, std::shared_ptr<const EpochOrder> first) : part_(part) {
    kept_.push_back(std::move(first));
  }

  std::shared_ptr<const EpochOrder> get(std::uint64_t epoch) const HEADRACE_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    const auto found = std::find_if(kept_.begin(), kept_.end(),
                                    [&](const auto& order) { return order->epoch() == epoch; });
    if (found != kept_.end()) return *found;
    auto made = EpochOrder::create(part_.order, part_.block_samples, epoch);
    HEADRACE_CHECK(made);  // The same spec was good for the first.
    kept_.push_back(*std::move(made));
    // Read ahead, small sources are in many epochs at once; orders of large ones take memory.
    const std::size_t blocks = part_.block_samples.size();
    if (kept_.size() > std::clamp<std::size_t>(kKeptBlocks / blocks, 4, 64)) kept_.pop_front();
    return kept_.back();
  }

 private:
  static constexpr std::size_t kKeptBlocks = 1 << 16;
  const MixturePart& part_;
  mutable Mutex mutex_;
  mutable std::deque<std::shared_ptr<const EpochOrder>> kept_ HEADRACE_GUARDED_BY(mutex_);
};

/// A source as the mixture numbers it.
struct Source {
  std::uint32_t first_lane = 0;
  std::uint32_t lanes = 0;
  std::uint32_t first_block = 0;
  std::uint64_t first_sample = 0;
  std::uint64_t sample_count = 0;
  std::vector<std::uint64_t> block_first;  ///< Position in the source of each of its blocks.
  std::unique_ptr<EpochCache> orders;
  std::unique_ptr<order_detail::SourceEpochs> epochs;  ///< None in version 1.
};

/// The identity that states and reports show. The digest covers all parts.
OrderSpec spec_of(const MixtureSpec& mixture) {
  OrderSpec spec;
  spec.id = "mixture";
  spec.version = mixture.version;
  spec.seed = mixture.seed;
  spec.lane_count = 0;
  spec.window_blocks = 1;
  spec.block_table_digest = order_math::mix(mixture.parts.size() + order_math::kGolden);
  for (const MixturePart& part : mixture.parts) {
    spec.lane_count += part.order.lane_count;
    spec.window_blocks = std::max(spec.window_blocks, part.order.window_blocks);
    spec.block_table_digest =
        order_math::mix(spec.block_table_digest + part.order.block_table_digest);
  }
  return spec;
}

class MixtureOrderImpl final : public MixtureOrder {
 public:
  MixtureOrderImpl(std::shared_ptr<const MixtureSchedule> schedule,
                   std::shared_ptr<const MixtureSpec> mixture, std::vector<Source> sources,
                   std::uint64_t epoch)
      : schedule_owner_(std::move(schedule)),
        schedule_(static_cast<const Schedule&>(*schedule_owner_)),
        mixture_(std::move(mixture)),
        spec_(spec_of(*mixture_)),
        sources_(std::move(sources)),
        epoch_(epoch),
        groups_(mixture_->groups),
        first_step_(epoch * schedule_.epoch_steps()) {}

  const OrderSpec& spec() const noexcept override { return spec_; }
  std::uint64_t epoch() const noexcept override { return epoch_; }
  std::uint64_t sample_count() const noexcept override { return mixture_->epoch_samples; }

  LanePosition locate(std::uint64_t t, const Segment& segment) const override {
    HEADRACE_DCHECK(segment.start <= t && t < sample_count());
    const std::uint64_t global_batch = segment.global_batch;
    if (t >= segment.full_end(sample_count()) || !is_aligned(segment))
      return place(static_cast<std::uint32_t>(t % groups_), t / groups_);
    const std::uint64_t rows = global_batch / groups_;
    const std::uint64_t slot = (t - segment.start) % global_batch;
    const std::uint64_t batch = (t - segment.start) / global_batch;
    return place(static_cast<std::uint32_t>(slot / rows),
                 segment.start / groups_ + batch * rows + slot % rows);
  }

  std::uint64_t lane_length(std::uint32_t lane) const override {
    return lane_consumed(lane, sample_count());
  }

  std::uint64_t lane_consumed(std::uint32_t lane, std::uint64_t t) const override {
    const std::uint32_t index = source_of_lane(lane);
    const Source& source = sources_[index];
    const std::uint32_t in_source = lane - source.first_lane;
    const std::uint32_t group = in_source % groups_;
    const std::uint64_t steps = first_step_ + t / groups_ + (group < t % groups_ ? 1 : 0);
    const std::uint64_t count = schedule_.count_in_group(index, group, steps);
    const std::uint64_t width = source.lanes / groups_;
    return count / width + (in_source / groups_ < count % width ? 1 : 0);
  }

  std::uint64_t global_sample(std::uint32_t lane, std::uint64_t position,
                              const Segment& segment) const override {
    const std::uint32_t index = source_of_lane(lane);
    const Source& source = sources_[index];
    const std::uint32_t in_source = lane - source.first_lane;
    const std::uint32_t group = in_source % groups_;
    const std::uint64_t step =
        schedule_.step_of(index, group, number_of(source, in_source, position));
    if (step == kNever) return kNever;
    if (step < first_step_) return 0;
    const std::uint64_t row = step - first_step_;
    const std::uint64_t in_turn = row * groups_ + group;
    if (!is_aligned(segment) || in_turn < segment.start ||
        in_turn >= segment.full_end(sample_count()))
      return in_turn;
    const std::uint64_t rows = segment.global_batch / groups_;
    const std::uint64_t in_segment = row - segment.start / groups_;
    return segment.start + in_segment / rows * segment.global_batch + group * rows +
           in_segment % rows;
  }

  std::vector<std::uint32_t> own_lanes(const BatchPlan& plan) const override {
    const Segment& segment = plan.segment;
    const std::uint64_t start = std::min(segment.start, plan.sample_count);
    const std::uint64_t end = Segment{start, segment.global_batch}.full_end(plan.sample_count);
    std::uint64_t first_group = 0;
    std::uint64_t last_group = groups_ - 1;
    if (is_aligned(segment)) {
      const std::uint64_t rows = segment.global_batch / groups_;
      const std::uint64_t slots = segment.global_batch / plan.world_size;
      first_group = plan.rank * slots / rows;
      last_group = (plan.rank * slots + slots - 1) / rows;
    }
    std::vector<std::pair<std::uint64_t, std::uint32_t>> touched;
    for (std::uint32_t lane = 0; lane < spec_.lane_count; ++lane) {
      const std::uint32_t group = (lane - sources_[source_of_lane(lane)].first_lane) % groups_;
      if (group < first_group || group > last_group) continue;
      const std::uint64_t from = lane_consumed(lane, start);
      if (from < lane_consumed(lane, end))
        touched.emplace_back(batch_of(lane, from, segment), lane);
    }
    std::sort(touched.begin(), touched.end());
    std::vector<std::uint32_t> own;
    for (const auto& [batch, lane] : touched) own.push_back(lane);
    return own;
  }

  double lane_readers(std::uint64_t global_batch, std::uint32_t world_size) const override {
    return order_detail::mean_readers(groups_, 1, global_batch, world_size);
  }

  Window window_at(std::uint32_t lane, std::uint64_t position) const override {
    const Source& source = sources_[source_of_lane(lane)];
    const std::uint32_t in_source = lane - source.first_lane;
    Window window = source.epochs == nullptr ? window_of_lane(source, in_source, position)
                                             : window_of_epoch(source, in_source, position);
    for (Piece& piece : window.pieces) piece.block += source.first_block;
    return window;
  }

  WindowSample sample_at(const Window& window, std::uint64_t position) const override {
    std::uint64_t index = position - window.first_position;
    if (window.is_shuffled)
      index = order_math::Permutation(window.key, window.shuffled_count)(index);
    return order_math::sample_of_index(window, index);
  }

  std::uint64_t block_first_sample(std::uint32_t block) const override {
    const auto after = std::upper_bound(
        sources_.begin(), sources_.end(), block,
        [](std::uint32_t b, const Source& source) { return b < source.first_block; });
    const Source& source = *(after - 1);
    return source.first_sample + source.block_first[block - source.first_block];
  }

  std::uint64_t largest_window_weight(std::span<const std::uint64_t> block_bytes) const override {
    std::uint64_t largest = 0;
    for (const Source& source : sources_) {
      const std::uint64_t epoch =
          source.epochs == nullptr
              ? lane_consumed(source.first_lane, 0) / length_of(source, 0)
              : schedule_.count(index_of(source), epoch_ * sample_count()) / source.sample_count;
      largest =
          std::max(largest, source.orders->get(epoch)->largest_window_weight(block_bytes.subspan(
                                source.first_block, source.block_first.size())));
    }
    return largest;
  }

  SourceEpoch source_at(std::uint32_t lane, std::uint64_t position) const override {
    const std::uint32_t index = source_of_lane(lane);
    const Source& source = sources_[index];
    const std::uint32_t in_source = lane - source.first_lane;
    const std::uint64_t epoch =
        source.epochs == nullptr ? position / length_of(source, in_source)
                                 : source.epochs->epoch_number(
                                       in_source % groups_, number_of(source, in_source, position));
    return {.source = index, .epoch = epoch};
  }

 private:
  bool is_aligned(const Segment& segment) const noexcept {
    return segment.global_batch % groups_ == 0 && segment.start % groups_ == 0;
  }
  static std::uint64_t length_of(const Source& source, std::uint32_t lane) noexcept {
    return source.sample_count / source.lanes + (lane < source.sample_count % source.lanes ? 1 : 0);
  }
  std::uint32_t index_of(const Source& source) const noexcept {
    return static_cast<std::uint32_t>(&source - sources_.data());
  }
  /// Number, among its group's samples of the source, of the one at a position of a lane.
  std::uint64_t number_of(const Source& source, std::uint32_t in_source,
                          std::uint64_t position) const noexcept {
    return position * (source.lanes / groups_) + in_source / groups_;
  }
  /// Version 1: every lane goes through epochs by itself.
  static Window window_of_lane(const Source& source, std::uint32_t in_source,
                               std::uint64_t position) {
    const std::uint64_t length = length_of(source, in_source);
    const std::uint64_t epoch = position / length;
    Window window = source.orders->get(epoch)->window_at(in_source, position % length);
    window.first_position += epoch * length;
    return window;
  }
  /// Version 2: the groups go through each epoch together. Its samples are dealt out anew, so
  /// another lane of the source's own order may come where this one stands.
  Window window_of_epoch(const Source& source, std::uint32_t in_source,
                         std::uint64_t position) const {
    const std::uint32_t group = in_source % groups_;
    const std::uint64_t number = number_of(source, in_source, position);
    const auto epoch = source.epochs->epoch_of(group, number);
    const auto order = source.orders->get(epoch->number);
    const std::uint64_t width = source.lanes / groups_;
    const auto lane_of = [&](std::uint32_t owner, std::uint64_t index) {
      return owner + groups_ * static_cast<std::uint32_t>(index % width);
    };
    const std::uint64_t index = number - epoch->first[group];
    const std::uint64_t own = epoch->own[group];
    if (index >= own) {
      HEADRACE_DCHECK(index - own < epoch->taken[group].size());
      const auto& taken = epoch->taken[group][index - own];
      const std::uint64_t place = taken.index / width;
      const Window window = order->window_at(lane_of(taken.group, taken.index), place);
      return single(window, order->sample_at(window, place), position);
    }
    Window window = order->window_at(lane_of(group, index), index / width);
    const std::uint64_t end = (own - index % width + width - 1) / width;
    window.sample_count = std::min(window.sample_count, end - window.first_position);
    window.first_position = position - (index / width - window.first_position);
    return window;
  }
  /// One sample of a window, as a window at `position`.
  static Window single(const Window& window, const WindowSample& sample, std::uint64_t position) {
    Window out;
    out.first_position = position;
    out.sample_count = 1;
    out.shuffled_count = 1;
    out.is_shuffled = false;
    out.pieces = {{.block = window.pieces[sample.piece].block,
                   .begin = sample.sample_in_block,
                   .end = sample.sample_in_block + 1}};
    return out;
  }
  std::uint32_t source_of_lane(std::uint32_t lane) const noexcept {
    HEADRACE_DCHECK(lane < spec_.lane_count);
    const auto after = std::upper_bound(
        sources_.begin(), sources_.end(), lane,
        [](std::uint32_t l, const Source& source) { return l < source.first_lane; });
    return static_cast<std::uint32_t>(after - sources_.begin()) - 1;
  }
  LanePosition place(std::uint32_t group, std::uint64_t row) const {
    const auto entry = schedule_.at(group, first_step_ + row);
    HEADRACE_DCHECK(entry.source < sources_.size());
    const Source& source = sources_[entry.source];
    const std::uint64_t width = source.lanes / groups_;
    return {.lane = source.first_lane + group +
                    groups_ * static_cast<std::uint32_t>(entry.number % width),
            .position = entry.number / width};
  }

  const std::shared_ptr<const MixtureSchedule> schedule_owner_;
  const Schedule& schedule_;
  const std::shared_ptr<const MixtureSpec> mixture_;
  const OrderSpec spec_;
  const std::vector<Source> sources_;
  const std::uint64_t epoch_;
  const std::uint32_t groups_;
  const std::uint64_t first_step_;
};

Result<Source> make_source(const MixturePart& part, std::uint32_t index, std::uint32_t groups) {
  const std::string name = "source " + std::to_string(index);
  if (part.order.lane_count == 0 || part.order.lane_count % groups != 0)
    return bad(name + " has " + std::to_string(part.order.lane_count) +
               " lanes, not a multiple of the " + std::to_string(groups) + " groups");
  auto order = EpochOrder::create(part.order, part.block_samples, 0);
  if (!order) return std::move(order).error().annotate("mixture: " + name);
  Source source;
  source.lanes = part.order.lane_count;
  source.sample_count = (*order)->sample_count();
  for (std::uint32_t b = 0; b < part.block_samples.size(); ++b)
    source.block_first.push_back((*order)->block_first_sample(b));
  source.orders = std::make_unique<EpochCache>(part, *std::move(order));
  return source;
}

}  // namespace

Result<std::shared_ptr<const MixtureOrder>> MixtureOrder::create(
    std::shared_ptr<const MixtureSchedule> schedule, std::shared_ptr<const MixtureSpec> spec,
    std::uint64_t epoch) {
  const auto* known = dynamic_cast<const Schedule*>(schedule.get());
  if (known == nullptr || known->source_count() != spec->parts.size() ||
      known->groups() != spec->groups)
    return bad("the schedule is not of this mixture");
  if (spec->version == 0 || spec->version > kMixtureVersion)
    return bad("order_version is " + std::to_string(spec->version) +
               "; this build knows versions 1 to " + std::to_string(kMixtureVersion));
  std::vector<Source> sources;
  Source next;
  for (const MixturePart& part : spec->parts) {
    const auto index = static_cast<std::uint32_t>(sources.size());
    HEADRACE_TRY_ASSIGN(Source source, make_source(part, index, spec->groups));
    if (spec->version >= 2) {
      source.epochs = std::make_unique<order_detail::SourceEpochs>(
          *known, index, source.sample_count, source.lanes);
    }
    source.first_lane = next.first_lane;
    source.first_block = next.first_block;
    source.first_sample = next.first_sample;
    next.first_lane += source.lanes;
    next.first_block += static_cast<std::uint32_t>(source.block_first.size());
    next.first_sample += source.sample_count;
    sources.push_back(std::move(source));
  }
  return std::shared_ptr<const MixtureOrder>(std::make_shared<const MixtureOrderImpl>(
      std::move(schedule), std::move(spec), std::move(sources), epoch));
}

}  // namespace headrace
