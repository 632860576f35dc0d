// Counts instead of lists: how many samples a source has had in a group at some step is a prefix
// sum at the start of a phase plus a look-up in its table. A run may have a trillion samples; what
// is kept depends on the number of changes, sources and groups only.
//
// Invariants:
// - phases_ is sorted by first_step and its first begins at step 0, so every step has a phase.
// - at(), count_in_group() and step_of() are three views of one sequence: step_of(i, g, n) is the
//   step at which at() gives number n of source i to group g.
// - What a phase begins with (`before`) is counted when it is added. So a change never moves what
//   was given before it, and a state that holds the weights holds the counts.
// - With exact shares the phases are one epoch, which repeats; with weights they go on for ever,
//   and the last one has no end.
#include "order/mixture_schedule.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>
#include <string>

#include "base/check.h"
#include "order/order_math.h"

namespace headrace {
namespace order_detail {
namespace {

std::vector<std::uint64_t> wide(std::span<const std::uint32_t> weights, std::size_t count) {
  std::vector<std::uint64_t> out(weights.begin(), weights.end());
  out.resize(count, 0);
  return out;
}

std::shared_ptr<const MixtureTable> make_table(const MixtureSpec& spec,
                                               const std::vector<std::uint64_t>& weights) {
  const auto sources = static_cast<std::uint32_t>(spec.parts.size());
  if (spec.batching == MixtureBatching::kPerSource) {
    return std::make_shared<MixtureTable>(interleave(weights), sources, 1,
                                          spec.batch / spec.groups);
  }
  const bool is_stratified = spec.batching == MixtureBatching::kStratified;
  const auto shares = is_stratified ? apportion(weights, spec.batch) : weights;
  return std::make_shared<MixtureTable>(interleave(shares), sources, spec.groups, 1);
}

}  // namespace

Schedule::Schedule(const MixtureSpec& spec)
    : groups_(spec.groups),
      source_count_(static_cast<std::uint32_t>(spec.parts.size())),
      epoch_samples_(spec.epoch_samples),
      epoch_steps_((spec.epoch_samples + spec.groups - 1) / spec.groups),
      is_cyclic_(!spec.epoch_shares.empty()) {
  if (is_cyclic_) {
    plan_shares(spec.epoch_shares);
  } else {
    plan_changes(spec);
  }
}

void Schedule::add_phase(std::uint64_t first_step, std::shared_ptr<const MixtureTable> table) {
  std::vector<std::uint64_t> before(std::size_t{source_count_} * groups_, 0);
  for (std::uint32_t i = 0; i < source_count_; ++i) {
    for (std::uint32_t g = 0; g < groups_; ++g)
      before[cell(i, g)] = count_in_phases(i, g, first_step);
  }
  phases_.push_back({first_step, std::move(table), std::move(before)});
}

void Schedule::plan_changes(const MixtureSpec& spec) {
  for (const MixtureChange& change : spec.changes)
    add_phase(change.first_sample / groups_, make_table(spec, wide(change.weights, source_count_)));
}

// It ends: as long as there is more than one period, the largest of at most 32 shares has over
// 1,000 entries a period, many times the 16 groups at most, so every pass takes something away. No
// table is longer than 65,536 entries.
// Whole periods of equal shares, then what the division left over in the same way, until one period
// takes it all.
void Schedule::plan_shares(std::vector<std::uint64_t> shares) {
  std::uint64_t first_step = 0;
  while (true) {
    const std::uint64_t rest = std::accumulate(shares.begin(), shares.end(), std::uint64_t{0});
    if (rest == 0) break;
    const std::uint64_t periods = (rest + kMixtureWeightSum - 1) / kMixtureWeightSum;
    std::vector<std::uint64_t> period = shares;
    if (periods > 1) {
      // Multiples of the groups, so that periods are whole rows.
      for (std::uint64_t& share : period) share = share / (periods * groups_) * groups_;
    }
    auto table =
        std::make_shared<const MixtureTable>(interleave(period), source_count_, groups_, 1);
    add_phase(first_step, table);
    first_step += table->period_steps() * periods;
    for (std::size_t i = 0; i < shares.size(); ++i) shares[i] -= period[i] * periods;
  }
  cycle_.resize(std::size_t{source_count_} * groups_);
  for (std::uint32_t i = 0; i < source_count_; ++i) {
    for (std::uint32_t g = 0; g < groups_; ++g)
      cycle_[cell(i, g)] = count_in_phases(i, g, epoch_steps_);
  }
}

const Schedule::Phase& Schedule::phase_at(std::uint64_t step) const noexcept {
  const auto after =
      std::upper_bound(phases_.begin(), phases_.end(), step,
                       [](std::uint64_t s, const Phase& phase) { return s < phase.first_step; });
  return *(after - 1);
}

std::uint64_t Schedule::count_in_phases(std::uint32_t source, std::uint32_t group,
                                        std::uint64_t steps) const noexcept {
  if (phases_.empty()) return 0;
  const Phase& phase = phase_at(steps);
  return phase.before[cell(source, group)] +
         phase.table->count(source, group, steps - phase.first_step);
}

std::uint64_t Schedule::count_in_group(std::uint32_t source, std::uint32_t group,
                                       std::uint64_t steps) const noexcept {
  if (!is_cyclic_) return count_in_phases(source, group, steps);
  return steps / epoch_steps_ * cycle_[cell(source, group)] +
         count_in_phases(source, group, steps % epoch_steps_);
}

MixtureTable::Entry Schedule::at(std::uint32_t group, std::uint64_t step) const noexcept {
  const std::uint64_t inside = is_cyclic_ ? step % epoch_steps_ : step;
  const Phase& phase = phase_at(inside);
  MixtureTable::Entry entry = phase.table->at(group, inside - phase.first_step);
  if (entry.source == kNoSource) return entry;
  entry.number += phase.before[cell(entry.source, group)];
  if (is_cyclic_) entry.number += step / epoch_steps_ * cycle_[cell(entry.source, group)];
  return entry;
}

std::uint64_t Schedule::step_of(std::uint32_t source, std::uint32_t group,
                                std::uint64_t number) const noexcept {
  std::uint64_t first_step = 0;
  if (is_cyclic_) {
    const std::uint64_t all = cycle_[cell(source, group)];
    if (all == 0) return kNever;
    first_step = number / all * epoch_steps_;
    number %= all;
  }
  const auto after = std::upper_bound(
      phases_.begin(), phases_.end(), number,
      [&](std::uint64_t n, const Phase& phase) { return n < phase.before[cell(source, group)]; });
  const Phase& phase = *(after - 1);
  const std::uint64_t step =
      phase.table->step_of(source, group, number - phase.before[cell(source, group)]);
  return step == kNever ? kNever : first_step + phase.first_step + step;
}

std::uint64_t Schedule::count(std::uint32_t source, std::uint64_t tau) const {
  const std::uint64_t epoch = tau / epoch_samples_;
  const std::uint64_t t = tau % epoch_samples_;
  std::uint64_t sum = 0;
  for (std::uint32_t g = 0; g < groups_; ++g) {
    sum +=
        count_in_group(source, g, epoch * epoch_steps_ + t / groups_ + (g < t % groups_ ? 1 : 0));
  }
  return sum;
}

std::vector<std::uint64_t> Schedule::counts(std::uint64_t tau, std::uint64_t batch) const {
  std::vector<std::uint64_t> out(source_count_);
  for (std::uint32_t i = 0; i < source_count_; ++i) out[i] = count(i, tau + batch) - count(i, tau);
  return out;
}

}  // namespace order_detail

namespace {

constexpr std::string_view kBatchingNames[] = {"proportional", "stratified", "per_source"};

Status bad(std::string what) {
  return Status(Code::kInvalidArgument, "mixture: " + std::move(what));
}

Status check_weights(const MixtureSpec& spec, const MixtureChange& change) {
  if (change.weights.empty() || change.weights.size() > spec.parts.size())
    return bad("a change has " + std::to_string(change.weights.size()) + " weights for " +
               std::to_string(spec.parts.size()) + " sources");
  const std::uint64_t sum =
      std::accumulate(change.weights.begin(), change.weights.end(), std::uint64_t{0});
  if (sum != kMixtureWeightSum)
    return bad("weights sum to " + std::to_string(sum) + ", not " +
               std::to_string(kMixtureWeightSum));
  if (spec.batching != MixtureBatching::kStratified) return {};
  const std::vector<std::uint64_t> wide(change.weights.begin(), change.weights.end());
  const auto shares = order_detail::apportion(wide, spec.batch);
  for (std::size_t i = 0; i < shares.size(); ++i) {
    if (wide[i] == 0 || shares[i] > 0) continue;
    const std::string& name = spec.parts[i].name;
    return bad("source " + (name.empty() ? std::to_string(i) : "'" + name + "'") +
               " has no sample in a stratified batch of " + std::to_string(spec.batch) +
               "; raise its weight or the batch size");
  }
  return {};
}

Status check_changes(const MixtureSpec& spec) {
  if (spec.changes.empty() || spec.changes.front().first_sample != 0)
    return bad("the first weights do not hold from sample 0 on");
  for (std::size_t i = 0; i < spec.changes.size(); ++i) {
    const MixtureChange& change = spec.changes[i];
    HEADRACE_TRY(check_weights(spec, change));
    if (change.first_sample % spec.batch != 0)
      return bad("weights change at sample " + std::to_string(change.first_sample) +
                 ", inside a batch of " + std::to_string(spec.batch));
    if (i > 0 && change.first_sample <= spec.changes[i - 1].first_sample)
      return bad("changes are not in order of their samples");
  }
  if (spec.epoch_samples % spec.batch != 0)
    return bad("an epoch of " + std::to_string(spec.epoch_samples) +
               " samples is not a whole number of batches of " + std::to_string(spec.batch));
  return {};
}

Status check_shares(const MixtureSpec& spec) {
  if (spec.epoch_shares.size() != spec.parts.size() || !spec.changes.empty() ||
      spec.batching != MixtureBatching::kProportional)
    return bad(
        "samples per epoch are given for each source, without weights, and batched "
        "proportionally");
  std::uint64_t sum = 0;
  for (const std::uint64_t share : spec.epoch_shares) {
    // 2^48 samples of one source: far beyond any, and sums cannot overflow.
    if (share > std::uint64_t{1} << 48)
      return bad("more than 2^48 samples of one source in an epoch");
    sum += share;
  }
  if (sum != spec.epoch_samples)
    return bad("the sources' samples sum to " + std::to_string(sum) + ", an epoch has " +
               std::to_string(spec.epoch_samples));
  return {};
}

}  // namespace

std::string_view mixture_batching_name(MixtureBatching batching) noexcept {
  return kBatchingNames[static_cast<std::size_t>(batching)];
}

Result<MixtureBatching> parse_mixture_batching(std::string_view name) {
  for (std::size_t i = 0; i < std::size(kBatchingNames); ++i) {
    if (kBatchingNames[i] == name) return static_cast<MixtureBatching>(i);
  }
  return bad("batching '" + std::string(name) +
             "' is unknown; there are proportional, stratified, per_source");
}

Result<std::vector<std::uint32_t>> mixture_weights(std::span<const double> proportions,
                                                   std::span<const std::string> names) {
  const auto weight_of = [&](std::size_t i) {
    return "the weight of source " + (i < names.size() ? "'" + names[i] + "'" : std::to_string(i));
  };
  double sum = 0;
  for (std::size_t i = 0; i < proportions.size(); ++i) {
    const double p = proportions[i];
    if (!(p >= 0) || !std::isfinite(p)) return bad(weight_of(i) + " is negative or not a number");
    sum += p;
  }
  if (!(sum > 0) || !std::isfinite(sum)) return bad("no weight is above 0");
  std::vector<std::uint32_t> weights(proportions.size());
  std::vector<double> rests(proportions.size());
  std::uint32_t given = 0;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const double exact = proportions[i] / sum * kMixtureWeightSum;
    weights[i] = static_cast<std::uint32_t>(std::floor(exact));
    rests[i] = exact - std::floor(exact);
    given += weights[i];
  }
  std::vector<std::size_t> by_rest(weights.size());
  std::iota(by_rest.begin(), by_rest.end(), std::size_t{0});
  std::stable_sort(by_rest.begin(), by_rest.end(),
                   [&](std::size_t a, std::size_t b) { return rests[a] > rests[b]; });
  // Largest remainders, so that the weights sum to exactly 65,536.
  for (std::size_t i = 0; given < kMixtureWeightSum; i = (i + 1) % by_rest.size(), ++given)
    ++weights[by_rest[i]];
  for (std::size_t i = 0; i < weights.size(); ++i) {
    if (proportions[i] > 0 && weights[i] == 0)
      return bad(weight_of(i) + " is less than 1/" + std::to_string(kMixtureWeightSum) +
                 " of the sum");
  }
  return weights;
}

std::uint64_t mixture_part_seed(std::uint64_t seed, std::uint32_t index) noexcept {
  return order_math::mix(seed + (index + std::uint64_t{1}) * order_math::kGolden);
}

std::uint32_t choose_mixture_groups(std::uint64_t global_batch,
                                    std::span<const std::uint64_t> source_samples) noexcept {
  std::uint32_t groups = kMaxMixtureGroups;
  const std::uint64_t least =
      source_samples.empty() ? 1 : *std::min_element(source_samples.begin(), source_samples.end());
  while (groups > 1 && (global_batch % groups != 0 || groups > least)) groups /= 2;
  return groups;
}

Result<std::shared_ptr<const MixtureSchedule>> MixtureSchedule::create(const MixtureSpec& spec) {
  if (spec.parts.empty() || spec.parts.size() > kMaxMixtureSources)
    return bad(std::to_string(spec.parts.size()) + " sources; there may be 1 to " +
               std::to_string(kMaxMixtureSources));
  if (spec.groups == 0 || spec.groups > kMaxMixtureGroups || !std::has_single_bit(spec.groups) ||
      spec.batch == 0 || spec.batch % spec.groups != 0)
    return bad(std::to_string(spec.groups) + " groups: not a power of two up to " +
               std::to_string(kMaxMixtureGroups) + " that divides the batch of " +
               std::to_string(spec.batch));
  if (spec.batch > std::uint64_t{1} << 24) return bad("a global batch of more than 2^24 samples");
  // A stratified table has one place a slot of the batch: 5 bytes each.
  if (spec.batching == MixtureBatching::kStratified && spec.batch > std::uint64_t{1} << 20)
    return bad("a stratified global batch of more than 2^20 samples");
  if (spec.epoch_samples == 0 || spec.epoch_samples > std::uint64_t{1} << 53)
    return bad("an epoch of no or of more than 2^53 samples");
  HEADRACE_TRY(spec.epoch_shares.empty() ? check_changes(spec) : check_shares(spec));
  return std::shared_ptr<const MixtureSchedule>(
      std::make_shared<const order_detail::Schedule>(spec));
}

}  // namespace headrace
