#pragma once
/// \file
/// The sample orders of litdata (0.2.71 to 0.2.76), bit for bit: chunk and item shuffles, the
/// association of chunks to workers, combined data sets, and resuming, elastic or not.
///
/// Place: src/order/litdata, pure: integers in, integers out, no I/O. Definition: docs/order.md,
/// "LitData's orders"; reasons: docs/design/0021. LitData deals out chunks, so the list holds the
/// item of every slot (4 bytes each; 8 from 2^32 items on).
///
/// Slot t = k * G + rank * B + j, where k counts a rank's batches as its DataLoader yields them:
/// round robin over the workers that still have items. Ranks that have fewer batches, and last
/// batches that are short, leave slots empty.
///
/// Threads: pure functions and immutable lists; any thread.
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "headrace/order.h"
#include "headrace/status.h"

namespace headrace {

/// One chunk of a data set. Items count through all chunks.
struct LitDataChunk {
  std::uint64_t begin = 0;      ///< First item of the chunk.
  std::uint64_t roi_begin = 0;  ///< First item used; begin unless the data set is subsampled.
  std::uint64_t roi_end = 0;    ///< Behind the last item used.
  std::uint64_t end = 0;
  std::uint64_t bytes = 0;  ///< chunk_bytes of the index; decides whether a node's chunks fit.
};

struct LitDataWorld {
  std::uint32_t world_size = 1;  ///< Ranks.
  std::uint32_t nodes = 1;       ///< Divides world_size.
  std::uint32_t workers = 1;     ///< DataLoader workers a rank; 0 workers count as 1.
  std::uint32_t batch_size = 1;
};

/// What the order depends on.
struct LitDataSpec {
  std::string shuffle = "none";  ///< none, full, window.
  std::uint32_t seed = 42;
  bool drop_last = false;
  /// Items shuffled together inside a chunk; 0 and 1: all. 256 is the default since 0.2.74; older
  /// releases, and states without the key, mean 0. With "window": absent means `window`'s sliding
  /// shuffle.
  std::optional<std::uint32_t> item_shuffle_window = 256;
  std::uint32_t window = 16;         ///< Chunks that a worker mixes among ("window").
  std::uint64_t max_cache_size = 0;  ///< Bytes; 0: unlimited.
};

/// Where a run is, from its state_dict().
struct LitDataState {
  std::uint32_t epoch = 1;                ///< Counts from 1.
  std::uint64_t num_samples_yielded = 0;  ///< By each rank.
  std::uint64_t sample_in_epoch = 0;      ///< Over all ranks.
  LitDataWorld saved_by;                  ///< The world of the state (nodes are not compared).
  LitDataWorld initial;                   ///< The world that the epoch began in.
  bool is_elastic = false;  ///< resume_mode "elastic": the epoch was dealt out anew before.
};

/// The slots of an epoch from its start. Errors: kInvalidArgument (unknown shuffle, a world with a
/// zero, chunks that are not in sequence).
Result<std::shared_ptr<const SampleList>> make_litdata_list(const LitDataSpec& spec,
                                                            std::span<const LitDataChunk> chunks,
                                                            const LitDataWorld& world,
                                                            std::uint32_t epoch);

/// The slots that are left after `state`, in `world`: each worker goes on where it was when the
/// world is the same, else what is left is dealt out anew. Errors: as above.
Result<std::shared_ptr<const SampleList>> resume_litdata_list(const LitDataSpec& spec,
                                                              std::span<const LitDataChunk> chunks,
                                                              const LitDataWorld& world,
                                                              const LitDataState& state);

/// Which data set each sample of a CombinedStreamingDataset comes from.
struct LitDataCombinedSpec {
  std::vector<double> weights;  ///< As the iterator gets them: normalised.
  std::uint64_t seed = 42;
  bool iterate_over_all = true;
  bool is_per_stream = false;  ///< batching_method.
  std::uint64_t batch_size = 1;
};
/// `lengths`: samples that each data set has left; `replayed`: samples already yielded, whose draws
/// are made again first. Errors: kInvalidArgument (different counts, weights that are negative or
/// all zero).
Result<std::vector<std::uint32_t>> combine_litdata(const LitDataCombinedSpec& spec,
                                                   std::span<const std::uint64_t> lengths,
                                                   std::uint64_t replayed);

}  // namespace headrace
