// MosaicEpoch: weights, sampling, shuffle and batching put together.
//
// Everything here must come out sample for sample as in Mosaic, so what matters is which seed
// decides what, and which streams are shuffled together.
//
// Invariants:
// - The shuffles work on ids of the epoch, not on positions of the dataset: they need the ids of a
//   unit to be consecutive, and a resampled unit's positions are not. Positions replace the ids
//   afterwards, in place.
// - With the batching method "random" all streams are one group, which is shuffled as a whole.
//   With any other each stream is a group of its own, with its share of shuffle_block_size.
// - The key of a table covers all that decides its entries, and nothing of the world or of the
//   position in the epoch: a run that goes on with other ranks finds the table it has made before.
// - Without a shuffle, and with every sample taken once, there is no table: ids are positions.
#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>
#include <numeric>

#include "headrace/machine.h"
#include "headrace/mosaic_order.h"
#include "order/mosaic/batching.h"
#include "order/mosaic/sampling.h"
#include "order/mosaic/shuffle.h"
#include "order/order_math.h"

namespace headrace {
namespace mosaic {
namespace {

constexpr std::uint64_t kLargestSeed = std::numeric_limits<std::int64_t>::max();
// Keeps seed + epoch below 2^64, and any counter of epochs plausible.
constexpr std::uint64_t kLargestEpoch = std::uint64_t{1} << 62;
// More processes than any machine has; keeps products of counts below 2^63.
constexpr std::uint64_t kMostNodes = 1 << 24;

Status invalid(const std::string& why) { return Status(Code::kInvalidArgument, why); }

/// Not cryptographic: tells apart the inputs of tables in one cache directory.
class Digest {
 public:
  void add(std::uint64_t value) noexcept {
    first_ = order_math::mix(first_ ^ value) + order_math::kGolden;
    second_ = order_math::mix(second_ + value * 3) ^ std::rotl(first_, 23);
  }
  std::string hex() const {
    std::string out;
    for (const std::uint64_t word : {first_, second_}) {
      for (int shift = 60; shift >= 0; shift -= 4) {
        out += "0123456789abcdef"[(word >> shift) & 15];
      }
    }
    return out;
  }

 private:
  std::uint64_t first_ = 0x6d6f736169630001;  // "mosaic", version 1
  std::uint64_t second_ = 0;
};

/// Streams that are shuffled together, and their stretch of the table.
struct Group {
  EpochSamples samples;
  ShuffleSpec shuffle;
  std::uint64_t first_id = 0;
};

template <class T>
void map_to_positions(const EpochSamples& samples, std::span<T> table) {
  if (samples.is_identity()) {
    const auto first = static_cast<T>(samples.first_position());
    if (first != 0) {
      for (T& entry : table) entry = static_cast<T>(entry + first);
    }
    return;
  }
  std::vector<T> positions(table.size());
  samples.write(std::span(positions));
  for (T& entry : table) entry = positions[entry];
}

template <class T>
Status build_group(const Group& group, bool is_shuffled, std::span<T> table,
                   std::uint32_t threads) {
  if (!is_shuffled) {
    group.samples.write(table);
    return Status();
  }
  HEADRACE_TRY(shuffle_units(group.samples.units(), group.shuffle, table, threads));
  map_to_positions(group.samples, table);
  return Status();
}

template <class T>
class TableList final : public SampleList {
 public:
  TableList(std::shared_ptr<const Batching> batching, std::span<const T> table,
            std::shared_ptr<const void> owner)
      : batching_(std::move(batching)), table_(table), owner_(std::move(owner)) {}
  std::uint64_t size() const noexcept override { return batching_->slot_count(); }
  void read(std::uint64_t t, std::span<std::int64_t> out) const override {
    for (std::int64_t& id : out) {
      const std::int64_t at = batching_->at(t++);
      id = at < 0 || table_.empty()
               ? at
               : static_cast<std::int64_t>(table_[static_cast<std::size_t>(at)]);
    }
  }

 private:
  std::shared_ptr<const Batching> batching_;
  std::span<const T> table_;  // empty: ids are positions
  std::shared_ptr<const void> owner_;
};

class Epoch final : public MosaicEpoch {
 public:
  Epoch(const MosaicSpec& spec, const MosaicWorld& world, const MosaicState& state,
        MosaicWeights weights)
      : spec_(spec), world_(world), state_(state), weights_(std::move(weights)) {}

  Status plan(std::span<const MosaicStream> streams);

  std::uint64_t table_bytes() const noexcept override {
    return has_table_ ? weights_.epoch_size * entry_bytes_ : 0;
  }
  const std::string& table_key() const noexcept override { return key_; }
  Status build(std::span<std::byte> table, std::uint32_t threads) const override;
  std::shared_ptr<const SampleList> list(std::span<const std::byte> table,
                                         std::shared_ptr<const void> owner) const override;
  std::uint64_t slot_count() const noexcept override { return batching_->slot_count(); }
  const MosaicWeights& weights() const noexcept override { return weights_; }
  const MosaicWorld& world() const noexcept override { return world_; }
  const MosaicState& state() const noexcept override { return state_; }

 private:
  std::uint64_t epoch_seed() const noexcept {
    const bool changes = spec_.shuffle && spec_.sampling_method == "balanced";
    return *state_.shuffle_seed + (changes ? state_.epoch : 0);
  }
  std::uint64_t block_size() const noexcept {
    if (spec_.shuffle_block_size != 0) return spec_.shuffle_block_size;
    return std::max<std::uint64_t>(4'000'000 / state_.num_canonical_nodes, 1 << 18);
  }
  Status plan_groups(std::span<const MosaicStream> streams, std::uint64_t dataset_samples);
  Status plan_batching();
  void set_key(std::span<const MosaicStream> streams);
  template <class T>
  Status build_table(std::span<T> table, std::uint32_t threads) const;

  MosaicSpec spec_;
  MosaicWorld world_;
  MosaicState state_;
  MosaicWeights weights_;
  std::vector<Group> groups_;
  std::shared_ptr<const Batching> batching_;
  bool has_table_ = false;
  std::uint64_t entry_bytes_ = 4;
  std::string key_;
};

Status Epoch::plan(std::span<const MosaicStream> streams) {
  std::uint64_t samples = 0;
  for (const MosaicStream& stream : streams) {
    for (const std::uint64_t shard : stream.shard_samples) samples += shard;
  }
  HEADRACE_TRY(plan_groups(streams, samples));
  HEADRACE_TRY(plan_batching());
  set_key(streams);
  return Status();
}

Status Epoch::plan_groups(std::span<const MosaicStream> streams, std::uint64_t dataset_samples) {
  HEADRACE_TRY_ASSIGN(const ShuffleAlgo algo, parse_shuffle_algo(spec_.shuffle_algo));
  std::vector<std::uint64_t> first(streams.size());
  std::uint64_t next = 0;
  for (std::size_t s = 0; s < streams.size(); ++s) {
    first[s] = next;
    for (const std::uint64_t shard : streams[s].shard_samples) next += shard;
  }
  SamplingSpec sampling;
  sampling.granularity = spec_.sampling_granularity;
  sampling.pick_seed = epoch_seed();
  // Unlike the pick seed, this one changes with the epoch even where nothing is shuffled.
  sampling.choice_seed =
      *state_.shuffle_seed + (spec_.sampling_method == "balanced" ? state_.epoch : 0);
  const bool is_one = spec_.batching_method == "random";
  const std::size_t width = is_one ? streams.size() : 1;
  bool is_identity = true;
  std::uint64_t ids = 0;
  for (std::size_t s = 0; s < streams.size(); s += width) {
    Group group;
    group.samples =
        resample_streams(streams.subspan(s, width), std::span(weights_.choose).subspan(s, width),
                         std::span(first).subspan(s, width), sampling);
    group.first_id = ids;
    is_identity =
        is_identity && group.samples.is_identity() && group.samples.first_position() == ids;
    ids += group.samples.size();
    group.shuffle = {algo, state_.num_canonical_nodes, *state_.shuffle_seed, state_.epoch,
                     block_size()};
    if (!is_one) {
      // The product is rounded down, as in Mosaic; so the share of a small stream may become 0.
      group.shuffle.block_size =
          static_cast<std::uint64_t>(static_cast<double>(block_size()) * weights_.proportion[s]);
    }
    if (spec_.shuffle) {
      if (spec_.batching_method == "device_per_stream" && group.shuffle.block_size == 0) {
        return invalid("stream " + std::to_string(s) + ": its share of shuffle_block_size " +
                       std::to_string(block_size()) + " is 0; raise it or the proportion");
      }
      HEADRACE_TRY(check_shuffle(group.shuffle, group.samples.size()));
    }
    groups_.push_back(std::move(group));
  }
  has_table_ = spec_.shuffle || !is_identity;
  const std::uint64_t largest = std::max(dataset_samples, weights_.epoch_size);
  entry_bytes_ = largest <= std::numeric_limits<std::uint32_t>::max() ? 4 : 8;
  return Status();
}

Status Epoch::plan_batching() {
  BatchingSpec batching;
  batching.world = world_;
  batching.is_relaxed = spec_.partition_algo == "relaxed";
  batching.canonical_nodes = state_.num_canonical_nodes;
  batching.initial_nodes = state_.initial_physical_nodes;
  batching.sample_in_epoch = state_.sample_in_epoch;
  batching.origin_seed = epoch_seed();
  batching.samples = weights_.choose;
  batching.proportion = weights_.proportion;
  HEADRACE_TRY_ASSIGN(batching_, make_batching(spec_.batching_method, batching));
  return Status();
}

void Epoch::set_key(std::span<const MosaicStream> streams) {
  Digest digest;
  const auto add_text = [&](const std::string& text) {
    for (const char c : text) digest.add(static_cast<unsigned char>(c));
    digest.add(text.size());
  };
  add_text(spec_.shuffle ? spec_.shuffle_algo : "");
  add_text(spec_.sampling_method);
  add_text(spec_.batching_method == "random" ? "random" : "by stream");
  for (const std::uint64_t value :
       {*state_.shuffle_seed, state_.epoch, std::uint64_t{state_.num_canonical_nodes},
        spec_.sampling_granularity, std::uint64_t{entry_bytes_}}) {
    digest.add(value);
  }
  for (const Group& group : groups_) digest.add(group.shuffle.block_size);
  for (std::size_t s = 0; s < streams.size(); ++s) {
    digest.add(weights_.choose[s]);
    digest.add(streams[s].shard_samples.size());
    for (const std::uint64_t shard : streams[s].shard_samples) digest.add(shard);
  }
  key_ = digest.hex();
}

template <class T>
Status Epoch::build_table(std::span<T> table, std::uint32_t threads) const {
  for (const Group& group : groups_) {
    HEADRACE_TRY(build_group(group, spec_.shuffle,
                             table.subspan(group.first_id, group.samples.size()), threads));
  }
  return Status();
}

Status Epoch::build(std::span<std::byte> table, std::uint32_t threads) const {
  if (table.size() != table_bytes()) {
    return invalid("a table of " + std::to_string(table.size()) + " bytes; it takes " +
                   std::to_string(table_bytes()));
  }
  if (!has_table_) return Status();
  // More threads would wait for the one that draws.
  constexpr std::uint32_t kMostThreads = 8;
  if (threads == 0) {
    threads = std::min(available_cores(), kMostThreads);
  }
  const std::size_t count = weights_.epoch_size;
  if (entry_bytes_ == 4) {
    return build_table(std::span(reinterpret_cast<std::uint32_t*>(table.data()), count), threads);
  }
  return build_table(std::span(reinterpret_cast<std::uint64_t*>(table.data()), count), threads);
}

std::shared_ptr<const SampleList> Epoch::list(std::span<const std::byte> table,
                                              std::shared_ptr<const void> owner) const {
  const std::size_t count = has_table_ && !table.empty() ? weights_.epoch_size : 0;
  if (entry_bytes_ == 4) {
    return std::make_shared<TableList<std::uint32_t>>(
        batching_, std::span(reinterpret_cast<const std::uint32_t*>(table.data()), count),
        std::move(owner));
  }
  return std::make_shared<TableList<std::uint64_t>>(
      batching_, std::span(reinterpret_cast<const std::uint64_t*>(table.data()), count),
      std::move(owner));
}

Status check_world(const MosaicWorld& world) {
  if (world.physical_nodes == 0 || world.ranks_per_node == 0 || world.workers == 0 ||
      world.batch_size == 0) {
    return invalid("nodes, ranks, workers and batch size are all at least 1");
  }
  for (const std::uint64_t count : {world.physical_nodes, world.ranks_per_node, world.workers}) {
    if (count > kMostNodes) return invalid("more than 2^24 nodes, ranks or workers");
  }
  if (std::uint64_t{world.physical_nodes} * world.ranks_per_node > kMostNodes) {
    return invalid("more than 2^24 ranks");
  }
  return Status();
}

Status check_spec(const MosaicSpec& spec) {
  if (spec.sampling_method != "balanced" && spec.sampling_method != "fixed") {
    return invalid("sampling_method=" + spec.sampling_method + ": expected balanced or fixed");
  }
  if (spec.partition_algo != "relaxed" && spec.partition_algo != "orig") {
    return invalid("partition_algo=" + spec.partition_algo + ": expected relaxed or orig");
  }
  if (spec.sampling_granularity == 0) return invalid("sampling_granularity is at least 1");
  if (spec.shuffle_seed > kLargestSeed) return invalid("shuffle_seed is below 2^63");
  if (spec.shuffle_block_size > std::uint64_t{1} << 40) {
    return invalid("shuffle_block_size is at most 2^40");
  }
  return Status();
}

/// The state with defaults of the spec and the world.
Result<MosaicState> resolve_state(const MosaicSpec& spec, const MosaicWorld& world,
                                  MosaicState state) {
  // py1s and py2s shuffle no wider than a shard: Mosaic gives them more nodes to mix over.
  constexpr std::uint32_t kNodesWithoutBlocks = 64;
  if (state.num_canonical_nodes == 0) state.num_canonical_nodes = spec.num_canonical_nodes;
  if (state.num_canonical_nodes == 0) {
    const bool is_narrow = spec.shuffle_algo == "py1s" || spec.shuffle_algo == "py2s";
    state.num_canonical_nodes = world.physical_nodes * (is_narrow ? kNodesWithoutBlocks : 1);
  }
  if (!state.shuffle_seed) state.shuffle_seed = spec.shuffle_seed;
  if (*state.shuffle_seed > kLargestSeed) return invalid("shuffle_seed is below 2^63");
  if (state.epoch > kLargestEpoch) return invalid("epoch is at most 2^62");
  if (state.num_canonical_nodes > kMostNodes || state.initial_physical_nodes > kMostNodes) {
    return invalid("more than 2^24 nodes");
  }
  return state;
}

}  // namespace
}  // namespace mosaic

Result<MosaicWorld> replicate_world(const MosaicWorld& world, std::uint32_t replication) {
  const std::uint32_t ranks = world.rank_count();
  if (replication == 0 || ranks % replication != 0) {
    return Status(Code::kInvalidArgument, "replication " + std::to_string(replication) +
                                              " does not divide " + std::to_string(ranks) +
                                              " ranks");
  }
  MosaicWorld out = world;
  const std::uint32_t left = ranks / replication;
  out.physical_nodes = left % world.ranks_per_node == 0 ? left / world.ranks_per_node : 1;
  out.ranks_per_node = left / out.physical_nodes;
  return out;
}

Result<std::shared_ptr<const MosaicEpoch>> MosaicEpoch::create(
    const MosaicSpec& spec, std::span<const MosaicStream> streams, const MosaicWorld& world,
    const MosaicState& state) {
  HEADRACE_TRY(mosaic::check_world(world));
  HEADRACE_TRY(mosaic::check_spec(spec));
  HEADRACE_TRY_ASSIGN(const MosaicState resolved, mosaic::resolve_state(spec, world, state));
  HEADRACE_TRY_ASSIGN(MosaicWeights weights,
                      apply_mosaic_weights(streams, spec.epoch_size, spec.shuffle_seed));
  auto epoch = std::make_shared<mosaic::Epoch>(spec, world, resolved, std::move(weights));
  HEADRACE_TRY(epoch->plan(streams));
  return std::shared_ptr<const MosaicEpoch>(std::move(epoch));
}

Result<std::shared_ptr<const SampleList>> make_mosaic_list(const MosaicEpoch& epoch,
                                                           std::uint32_t threads) {
  // Left uninitialised: build() writes all of it, and zeroes would cost as much again.
  const std::size_t words = (epoch.table_bytes() + 7) / 8;
  const std::shared_ptr<std::uint64_t[]> memory(new std::uint64_t[words]);
  const std::span<std::byte> table(reinterpret_cast<std::byte*>(memory.get()), epoch.table_bytes());
  HEADRACE_TRY(epoch.build(table, threads));
  return epoch.list(table, memory);
}

}  // namespace headrace
