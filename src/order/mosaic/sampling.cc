// How many samples each stream, shard and unit gives. All of it repeats numpy to the last bit: a
// share that is rounded another way moves one sample, and with it all that follow.
//
// - Either all weights are shares of an epoch's size, or each says a number of samples (repeat,
//   choose, or none: all). Truncated shares leave at most one sample a stream over, and these go
//   to streams that are drawn by lot.
// - A shard gives whole rounds of its samples first, then one partial unit. The draws of the
//   partial units come from one generator for all streams that are resampled together, shard after
//   shard.
#include "order/mosaic/sampling.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>

namespace headrace {

using mosaic::pairwise_sum;
using numpy_random::Generator;

namespace {

// Keeps every product of counts below 2^63, and a mistyped weight from asking for all memory.
constexpr double kMostSamples = static_cast<double>(std::uint64_t{1} << 40);

Status bad_weights(const std::string& why) { return Status(Code::kInvalidArgument, why); }

/// Dataset samples of each stream.
Result<std::vector<std::uint64_t>> stream_samples(std::span<const MosaicStream> streams) {
  std::vector<std::uint64_t> samples;
  for (const MosaicStream& stream : streams) {
    std::uint64_t sum = 0;
    for (const std::uint64_t shard : stream.shard_samples) {
      if (shard > numpy_random::kMax32) {
        return bad_weights("a shard of " + std::to_string(shard) + " samples; at most 2^32 - 1");
      }
      sum += shard;
    }
    if (sum == 0) {
      return bad_weights("stream " + std::to_string(samples.size()) + " contains no samples");
    }
    samples.push_back(sum);
  }
  if (samples.empty()) return bad_weights("no streams");
  return samples;
}

struct WeightKinds {
  bool is_relative = false;
  bool is_unspecified = true;
};

Result<WeightKinds> weight_kinds(std::span<const MosaicStream> streams) {
  WeightKinds kinds;
  kinds.is_relative = streams[0].proportion.has_value();
  for (std::size_t i = 0; i < streams.size(); ++i) {
    const MosaicStream& s = streams[i];
    const int given =
        int{s.proportion.has_value()} + int{s.repeat.has_value()} + int{s.choose.has_value()};
    const std::string where = " (stream " + std::to_string(i) + ")";
    if (given > 1) return bad_weights("at most one of proportion, repeat and choose" + where);
    if (kinds.is_relative != s.proportion.has_value()) {
      return bad_weights("proportion cannot be mixed with repeat, choose or no weight" + where);
    }
    for (const double weight : {s.proportion.value_or(0), s.repeat.value_or(0)}) {
      if (!(weight >= 0) || std::isinf(weight)) {
        return bad_weights("weights are finite and not negative" + where);
      }
    }
    if (given != 0) kinds.is_unspecified = false;
  }
  return kinds;
}

/// Shares of `epoch_size` by `share` (which are normalised here), remainders drawn by lot.
Status share_out(MosaicWeights& weights, std::vector<double> share, std::uint64_t seed) {
  const double sum = pairwise_sum(share);
  if (!(sum > 0)) return bad_weights("the proportions of all streams are zero");
  std::uint64_t given = 0;
  for (double& part : share) {
    part /= sum;
    weights.choose.push_back(
        static_cast<std::uint64_t>(static_cast<double>(weights.epoch_size) * part));
    given += weights.choose.back();
  }
  if (given > weights.epoch_size || weights.epoch_size - given > share.size()) {
    return bad_weights("proportions too small to divide " + std::to_string(weights.epoch_size) +
                       " samples by");
  }
  for (const std::uint64_t stream :
       Generator(seed).choice(share.size(), weights.epoch_size - given)) {
    ++weights.choose[stream];
  }
  weights.proportion = std::move(share);
  return Status();
}

Status choose_absolute(MosaicWeights& weights, std::span<const MosaicStream> streams,
                       std::span<const std::uint64_t> samples) {
  for (std::size_t i = 0; i < streams.size(); ++i) {
    std::uint64_t choose = samples[i];
    if (streams[i].choose) choose = *streams[i].choose;
    if (streams[i].repeat) {
      const double wanted = *streams[i].repeat * static_cast<double>(samples[i]);
      if (wanted > kMostSamples) return bad_weights("repeat asks for more than 2^40 samples");
      choose = static_cast<std::uint64_t>(wanted);
    }
    weights.choose.push_back(choose);
    weights.epoch_size += choose;
  }
  if (weights.epoch_size == 0) return bad_weights("the weights leave no samples");
  for (const std::uint64_t choose : weights.choose) {
    weights.proportion.push_back(static_cast<double>(choose) /
                                 static_cast<double>(weights.epoch_size));
  }
  return Status();
}

}  // namespace

Result<MosaicWeights> apply_mosaic_weights(std::span<const MosaicStream> streams,
                                           std::uint64_t epoch_size, std::uint64_t seed) {
  HEADRACE_TRY_ASSIGN(const auto samples, stream_samples(streams));
  HEADRACE_TRY_ASSIGN(const WeightKinds kinds, weight_kinds(streams));
  MosaicWeights weights;
  if (kinds.is_relative || (kinds.is_unspecified && epoch_size != 0)) {
    weights.epoch_size = epoch_size != 0
                             ? epoch_size
                             : std::accumulate(samples.begin(), samples.end(), std::uint64_t{0});
    std::vector<double> share;
    for (std::size_t i = 0; i < streams.size(); ++i) {
      share.push_back(kinds.is_relative ? *streams[i].proportion : static_cast<double>(samples[i]));
    }
    HEADRACE_TRY(share_out(weights, std::move(share), seed));
  } else {
    if (epoch_size != 0) {
      return bad_weights("epoch_size goes with proportions or no weights, not repeat or choose");
    }
    HEADRACE_TRY(choose_absolute(weights, streams, samples));
  }
  if (static_cast<double>(weights.epoch_size) > kMostSamples) {
    return bad_weights("an epoch of " + std::to_string(weights.epoch_size) +
                       " samples; at most 2^40");
  }
  return weights;
}

std::vector<std::uint64_t> sample_mosaic_shards(std::span<const std::uint64_t> shard_samples,
                                                std::uint64_t choose, std::uint64_t granularity,
                                                std::uint64_t seed) {
  const std::uint64_t total =
      std::accumulate(shard_samples.begin(), shard_samples.end(), std::uint64_t{0});
  std::vector<std::uint64_t> out(shard_samples.begin(), shard_samples.end());
  for (std::uint64_t& count : out) count *= choose / total;
  std::uint64_t left = choose % total;
  if (left == 0) return out;
  // Whole rounds are given. What is left goes out in picks, in random order, until nothing is
  // left; so at most one pick is cut short.
  // Picks of `granularity` samples, listed shard by shard; the last of a shard is what remains.
  std::vector<std::uint32_t> shard_of;
  std::vector<std::uint64_t> last_pick(shard_samples.size());
  for (std::size_t s = 0; s < shard_samples.size(); ++s) {
    const std::uint64_t picks = (shard_samples[s] + granularity - 1) / granularity;
    shard_of.insert(shard_of.end(), picks, static_cast<std::uint32_t>(s));
    last_pick[s] = shard_of.size();
  }
  for (const std::uint64_t pick : Generator(seed).permutation(shard_of.size())) {
    const std::uint32_t shard = shard_of[pick];
    const std::uint64_t samples = shard_samples[shard];
    const std::uint64_t size = pick + 1 == last_pick[shard]
                                   ? samples - (samples - 1) / granularity * granularity
                                   : granularity;
    const std::uint64_t taken = std::min(left, size);
    out[shard] += taken;
    left -= taken;
    if (left == 0) break;
  }
  return out;
}

namespace mosaic {

// The constants and the shape of the sum are those of numpy's add.reduce for float64: below 8
// values one after the other, up to 128 in eight lanes, and more in two halves.
double pairwise_sum(std::span<const double> values) noexcept {
  constexpr std::size_t kLanes = 8;
  constexpr std::size_t kBlock = 128;
  if (values.size() < kLanes) {
    double sum = 0;
    for (const double value : values) sum += value;
    return sum;
  }
  if (values.size() > kBlock) {
    const std::size_t half = values.size() / 2 / kLanes * kLanes;
    return pairwise_sum(values.first(half)) + pairwise_sum(values.subspan(half));
  }
  double lane[kLanes];
  std::copy_n(values.begin(), kLanes, lane);
  std::size_t i = kLanes;
  for (; i + kLanes <= values.size(); i += kLanes) {
    for (std::size_t k = 0; k < kLanes; ++k) lane[k] += values[i + k];
  }
  double sum =
      ((lane[0] + lane[1]) + (lane[2] + lane[3])) + ((lane[4] + lane[5]) + (lane[6] + lane[7]));
  for (; i < values.size(); ++i) sum += values[i];
  return sum;
}

void EpochSamples::add_shard(std::uint64_t first, std::uint64_t samples, std::uint64_t choose,
                             Generator& rng) {
  if (samples == 0) return;
  const auto add_unit = [&](std::uint64_t size, std::uint64_t partial) {
    if (first != first_position() + size_ && !first_.empty()) is_identity_ = false;
    units_.push_back(size);
    first_.push_back(first);
    partial_.push_back(partial);
    size_ += size;
  };
  for (std::uint64_t i = 0; i < choose / samples; ++i) add_unit(samples, 0);
  const std::uint64_t rest = choose % samples;
  if (rest == 0) return;
  is_identity_ = false;
  add_unit(rest, chosen_.size() + 1);
  auto drawn = rng.choice(samples, rest);
  // Sorted, as in Mosaic: the shuffle mixes them later, where there is one.
  std::sort(drawn.begin(), drawn.end());
  for (const std::uint64_t sample : drawn) chosen_.push_back(static_cast<std::uint32_t>(sample));
}

template <class T>
void EpochSamples::write(std::span<T> out) const {
  T* to = out.data();
  for (std::size_t u = 0; u < units_.size(); ++u) {
    for (std::uint64_t i = 0; i < units_[u]; ++i) {
      *to++ = static_cast<T>(first_[u] + (partial_[u] == 0 ? i : chosen_[partial_[u] - 1 + i]));
    }
  }
}
template void EpochSamples::write<std::uint32_t>(std::span<std::uint32_t>) const;
template void EpochSamples::write<std::uint64_t>(std::span<std::uint64_t>) const;

EpochSamples resample_streams(std::span<const MosaicStream> streams,
                              std::span<const std::uint64_t> choose,
                              std::span<const std::uint64_t> first_sample,
                              const SamplingSpec& spec) {
  EpochSamples out;
  Generator rng(spec.choice_seed);
  for (std::size_t s = 0; s < streams.size(); ++s) {
    const auto& shards = streams[s].shard_samples;
    const auto counts = sample_mosaic_shards(shards, choose[s], spec.granularity, spec.pick_seed);
    std::uint64_t first = first_sample[s];
    for (std::size_t i = 0; i < shards.size(); ++i) {
      out.add_shard(first, shards[i], counts[i], rng);
      first += shards[i];
    }
  }
  return out;
}

}  // namespace mosaic
}  // namespace headrace
