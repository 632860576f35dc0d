#pragma once
/// \file
/// The sample orders of mosaicml-streaming 0.13, bit for bit: weights, sampling, shuffles,
/// partitions, batching methods, and the state that a run resumes from.
///
/// Place: src/order/mosaic, pure: integers in, integers out, no I/O. Definition: docs/order.md,
/// "Mosaic's orders"; reasons: docs/design/0021. The only large thing is the *table*: the
/// dataset position of every sample of the epoch in shuffled order, 4 bytes each (8 from 2^32
/// samples on). The caller gives its memory, so that the ranks of a node can share one mapping of a
/// file (src/feed/order_table.h keeps such files). The rest is arithmetic: which slot of which
/// batch reads which table entry.
///
/// Words: *stream*, *shard*, *canonical node* as Mosaic uses them. A *slot* is a place of a global
/// batch; slot t = k * G + rank * B + j, where k counts a rank's batches as its DataLoader yields
/// them (batch k comes from worker k mod W).
///
/// Threads: values and immutable objects; any thread. build() may use several threads inside; its
/// result does not depend on how many.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "headrace/order.h"
#include "headrace/status.h"

namespace headrace {

/// The processes of a run. All counts >= 1.
struct MosaicWorld {
  std::uint32_t physical_nodes = 1;
  std::uint32_t ranks_per_node = 1;
  std::uint32_t workers = 1;     ///< DataLoader workers a rank; 0 workers count as 1.
  std::uint32_t batch_size = 1;  ///< Samples a rank and batch.

  std::uint32_t rank_count() const noexcept { return physical_nodes * ranks_per_node; }
  std::uint64_t global_batch() const noexcept { return std::uint64_t{rank_count()} * batch_size; }
};

/// The world in which `replication` consecutive ranks see the same samples: rank r of `world` is
/// rank r / replication of the result. Errors: kInvalidArgument (0, or it does not divide the
/// number of ranks).
Result<MosaicWorld> replicate_world(const MosaicWorld& world, std::uint32_t replication);

/// One stream: its shards, and at most one of the three weights.
struct MosaicStream {
  std::vector<std::uint64_t> shard_samples;  ///< Samples a shard, index order. At least one sample.
  std::optional<double> proportion;          ///< Relative; all streams have one or none has.
  std::optional<double> repeat;              ///< Times the stream's samples.
  std::optional<std::uint64_t> choose;       ///< Samples an epoch.
};

/// Arguments of StreamingDataset that the order depends on, with its defaults.
struct MosaicSpec {
  bool shuffle = false;
  std::string shuffle_algo = "py1e";         ///< py1e, py1s, py1br, py2s, naive.
  std::uint64_t shuffle_seed = 9176;         ///< Below 2^63.
  std::uint64_t shuffle_block_size = 0;      ///< Samples; 0: max(4,000,000 / nodes, 2^18).
  std::string sampling_method = "balanced";  ///< balanced, fixed.
  std::uint64_t sampling_granularity = 1;    ///< >= 1.
  std::string partition_algo = "relaxed";    ///< relaxed, orig.
  /// 0: the physical nodes of the first run, times 64 for py1s and py2s.
  std::uint32_t num_canonical_nodes = 0;
  std::string batching_method = "random";  ///< random, stratified, per_stream, device_per_stream.
  std::uint64_t epoch_size = 0;            ///< Samples; 0: by the weights.
};

/// Where a run is, as Mosaic's state_dict() says it.
struct MosaicState {
  std::uint64_t epoch = 0;
  std::uint64_t sample_in_epoch = 0;          ///< Over all ranks.
  std::uint32_t num_canonical_nodes = 0;      ///< 0: of the spec.
  std::optional<std::uint64_t> shuffle_seed;  ///< Absent: of the spec.
  /// 0: unknown (states of old releases, and a run that never stopped).
  std::uint32_t initial_physical_nodes = 0;
};

/// What the weights of streams come to.
struct MosaicWeights {
  std::vector<std::uint64_t> choose;  ///< Samples an epoch, one a stream.
  std::vector<double> proportion;     ///< Share of the epoch, one a stream.
  std::uint64_t epoch_size = 0;
};
/// Errors: kInvalidArgument (weights of different kinds, negative or not finite ones, a stream
/// without samples).
Result<MosaicWeights> apply_mosaic_weights(std::span<const MosaicStream> streams,
                                           std::uint64_t epoch_size, std::uint64_t seed);

/// Samples of each shard in an epoch that takes `choose` samples. \pre samples, granularity >= 1.
std::vector<std::uint64_t> sample_mosaic_shards(std::span<const std::uint64_t> shard_samples,
                                                std::uint64_t choose, std::uint64_t granularity,
                                                std::uint64_t seed);

/// One epoch of a run, or what is left of it.
class MosaicEpoch : public std::enable_shared_from_this<MosaicEpoch> {
 public:
  /// Plans the epoch that `state` names. O(shards + N/G); materialises no samples. Errors:
  /// kInvalidArgument for what Mosaic refuses too (nodes that do not divide one another, a block
  /// size or stream too small, a position past the end, unknown names) and for a world with a zero.
  static Result<std::shared_ptr<const MosaicEpoch>> create(const MosaicSpec& spec,
                                                           std::span<const MosaicStream> streams,
                                                           const MosaicWorld& world,
                                                           const MosaicState& state);
  virtual ~MosaicEpoch() = default;

  /// Bytes of the table: 0 when the order is arithmetic alone (no shuffle, no resampling), else 4
  /// or 8 a sample.
  virtual std::uint64_t table_bytes() const noexcept = 0;
  /// 32 hex digits of everything the table depends on (not the world, not the position).
  virtual const std::string& table_key() const noexcept = 0;
  /// Writes the table. `table`: table_bytes() bytes, aligned to 8, of undefined content. Memory
  /// beside it: a few bytes a shard, and the samples of the widest shuffle block. `threads`: 0
  /// takes the machine's. Errors: kInvalidArgument (a canonical node without samples under py1e).
  virtual Status build(std::span<std::byte> table, std::uint32_t threads = 0) const = 0;

  /// The slots that are left, empty ones -1. `table` was written by build() of an epoch with the
  /// same table_key(); `owner` keeps it alive. An empty `table`: places in the table, not what
  /// stands there.
  virtual std::shared_ptr<const SampleList> list(std::span<const std::byte> table,
                                                 std::shared_ptr<const void> owner) const = 0;

  virtual std::uint64_t slot_count() const noexcept = 0;  ///< Multiple of G * workers.
  virtual const MosaicWeights& weights() const noexcept = 0;
  virtual const MosaicWorld& world() const noexcept = 0;
  /// The position with defaults filled in: what state_dict() would say at its start.
  virtual const MosaicState& state() const noexcept = 0;
};

/// build() and list() in memory of its own.
Result<std::shared_ptr<const SampleList>> make_mosaic_list(const MosaicEpoch& epoch,
                                                           std::uint32_t threads = 0);

}  // namespace headrace
