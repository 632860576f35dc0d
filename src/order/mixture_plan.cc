// Groups, lanes and epochs of a mixture's first run.
#include <algorithm>
#include <bit>
#include <numeric>
#include <string>

#include "headrace/mixture.h"

namespace headrace {
namespace {

/// Lanes of all sources together, as choose_lanes() takes for one dataset: enough to mix small
/// batches, and eight slots a lane in large ones.
constexpr std::uint64_t kEnoughLanes = 64;
constexpr std::uint64_t kSlotsPerLane = 8;

Status bad(std::string what) {
  return Status(Code::kInvalidArgument, "mixture: " + std::move(what));
}

std::uint64_t samples_of(const MixtureInput& input) {
  return std::accumulate(input.block_samples.begin(), input.block_samples.end(), std::uint64_t{0});
}

Status check(const MixtureRequest& request, std::span<const MixtureInput> inputs) {
  if (inputs.empty() || inputs.size() > kMaxMixtureSources)
    return bad(std::to_string(inputs.size()) + " sources; there may be 1 to " +
               std::to_string(kMaxMixtureSources));
  if (request.global_batch == 0) return bad("a global batch of no samples");
  for (const MixtureInput& input : inputs) {
    if (samples_of(input) == 0) return bad("source '" + input.name + "' has no samples");
    if (input.window_blocks == 0) return bad("source '" + input.name + "': windows of no blocks");
  }
  if (request.epoch_shares.empty() == request.schedule.empty())
    return bad("either weights or samples of an epoch, not both");
  if (!request.epoch_shares.empty() && request.epoch_samples != 0)
    return bad("the samples of each source already say how long an epoch is");
  for (const MixtureProportions& entry : request.schedule) {
    if (entry.proportions.size() != inputs.size())
      return bad(std::to_string(entry.proportions.size()) + " weights for " +
                 std::to_string(inputs.size()) + " sources");
  }
  return {};
}

/// Largest share that each source ever has, 0 to 1.
std::vector<double> largest_shares(const MixtureSpec& spec) {
  std::vector<double> shares(spec.parts.size(), 0);
  for (std::size_t i = 0; i < spec.epoch_shares.size(); ++i) {
    shares[i] = static_cast<double>(spec.epoch_shares[i]) / static_cast<double>(spec.epoch_samples);
  }
  for (const MixtureChange& change : spec.changes) {
    for (std::size_t i = 0; i < change.weights.size(); ++i)
      shares[i] = std::max(shares[i], change.weights[i] / double{kMixtureWeightSum});
  }
  return shares;
}

/// Lanes of a source: its share of `lanes`, in multiples of the groups, as far as its samples and
/// blocks go.
std::uint32_t lanes_of(const MixtureInput& input, double share, std::uint64_t lanes,
                       std::uint32_t groups) {
  const auto wanted = static_cast<std::uint64_t>(share * static_cast<double>(lanes)) / groups;
  const std::uint64_t most = std::min<std::uint64_t>(
      samples_of(input) / groups, input.block_samples.size() / input.window_blocks / groups);
  return groups *
         static_cast<std::uint32_t>(std::clamp<std::uint64_t>(std::min(wanted, most), 1, 1 << 16));
}

}  // namespace

Result<MixtureSpec> plan_mixture(const MixtureRequest& request,
                                 std::span<const MixtureInput> inputs) {
  HEADRACE_TRY(check(request, inputs));
  MixtureSpec spec;
  spec.seed = request.seed;
  spec.batch = request.global_batch;
  spec.batching = request.batching;
  spec.epoch_shares = request.epoch_shares;
  std::uint64_t window_bytes = 1;
  std::vector<std::uint64_t> sizes;
  std::vector<std::string> names;
  for (const MixtureInput& input : inputs) {
    sizes.push_back(samples_of(input));
    names.push_back(input.name);
    window_bytes = std::max(window_bytes, input.window_bytes);
  }
  const std::uint64_t all = std::accumulate(sizes.begin(), sizes.end(), std::uint64_t{0});
  const std::uint64_t shares =
      std::accumulate(spec.epoch_shares.begin(), spec.epoch_shares.end(), std::uint64_t{0});
  spec.epoch_samples = request.epoch_samples > 0 ? request.epoch_samples : all;
  spec.epoch_samples = std::max(spec.epoch_samples / spec.batch, std::uint64_t{1}) * spec.batch;
  if (!spec.epoch_shares.empty()) spec.epoch_samples = shares;
  for (const MixtureProportions& entry : request.schedule) {
    HEADRACE_TRY_ASSIGN(auto weights, mixture_weights(entry.proportions, names));
    spec.changes.push_back({entry.first_batch * spec.batch, std::move(weights)});
  }
  // 1.5 windows a lane: docs/order.md, "Choosing lanes".
  const std::uint64_t fitting = request.memory_bytes / (window_bytes + window_bytes / 2);
  const std::uint64_t lanes = std::min(std::max(kEnoughLanes, spec.batch / kSlotsPerLane), fitting);
  spec.groups = request.groups;
  if (spec.groups == 0) {
    spec.groups = choose_mixture_groups(spec.batch, sizes);
    while (spec.groups > 1 && spec.groups * inputs.size() > lanes) spec.groups /= 2;
  }
  if (!request.is_shuffled) spec.groups = 1;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] < spec.groups)
      return bad("source '" + inputs[i].name + "' has " + std::to_string(sizes[i]) +
                 " samples, fewer than groups=" + std::to_string(spec.groups) +
                 "; it takes groups=" + std::to_string(std::bit_floor(sizes[i])) + " or less");
  }
  spec.parts.resize(inputs.size());
  const std::vector<double> largest = largest_shares(spec);
  for (std::uint32_t i = 0; i < inputs.size(); ++i) {
    OrderSpec& order = spec.parts[i].order;
    spec.parts[i].block_samples = inputs[i].block_samples;
    order.block_table_digest = block_table_digest(inputs[i].block_samples);
    order.id = request.is_shuffled ? "headrace" : "sequential";
    order.seed = request.is_shuffled ? mixture_part_seed(request.seed, i) : 0;
    order.window_blocks = request.is_shuffled ? inputs[i].window_blocks : 1;
    order.lane_count =
        request.is_shuffled ? lanes_of(inputs[i], largest[i], lanes, spec.groups) : 1;
  }
  return spec;
}

}  // namespace headrace
