#pragma once
/// \file
/// Order: which sample is at which place of an epoch. A pure function of (block table, spec,
/// epoch): integers in, integers out, no I/O, no threads, no clock. docs/order.md has the
/// definition bit for bit; docs/design/0003 the reasons.
///
/// Words: the *line* is all blocks in permuted order laid end to end, N positions. A *lane* is an
/// equal stretch of it. A *window* is W consecutive pieces of a lane; inside it samples are
/// permuted. Global sample t of the epoch comes from a lane and a position in that lane. Any prefix
/// [0, t) of the epoch is a set of equal lane prefixes (to within one sample).
///
/// Threads: immutable; any thread.
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "headrace/status.h"

namespace headrace {

/// Identity of an order: two runs with equal specs on the same dataset and epoch see the same
/// sequence.
struct OrderSpec {
  std::string id = "headrace";  ///< "headrace" or "sequential".
  std::uint32_t version = 1;
  std::uint64_t seed = 0;
  std::uint32_t lane_count = 1;     ///< C >= 1; 1 for "sequential".
  std::uint32_t window_blocks = 2;  ///< W >= 1; 1 for "sequential".
  /// Lanes that neighbouring slots of a batch alternate between; divides lane_count. See
  /// docs/design/0003.
  std::uint32_t bundle_lanes = 1;
  /// Samples a block, dataset order; the order of blocks depends on it, so its digest is part of
  /// the identity.
  std::uint64_t block_table_digest = 0;
};

/// A part of one block that a lane reads: samples [begin, end) of `block`.
struct Piece {
  std::uint32_t block = 0;
  std::uint32_t begin = 0;
  std::uint32_t end = 0;
};

/// Window of a lane: positions [first_position, first_position + sample_count) of the lane, made of
/// `pieces`.
struct Window {
  std::uint64_t first_position = 0;
  std::uint64_t sample_count = 0;
  /// Samples of the pieces, which are permuted together. More than sample_count where a lane of
  /// another group takes the last ones (mixtures).
  std::uint64_t shuffled_count = 0;
  std::uint64_t key = 0;      ///< Keys the permutation inside the window.
  std::vector<Piece> pieces;  ///< Laid end to end; a sample's unpermuted index counts through them.
  bool is_shuffled = true;    ///< False: samples come in the order of the pieces; `key` is unused.
};

/// Place of a global sample: which lane, how far into it.
struct LanePosition {
  std::uint32_t lane = 0;
  std::uint64_t position = 0;
};

/// LanePosition::lane of a slot without a sample: a listed order may leave slots of a batch empty.
inline constexpr std::uint32_t kNoLane = 0xffff'ffffU;

/// A sample inside a window.
struct WindowSample {
  std::uint32_t piece = 0;  ///< Index into Window::pieces.
  std::uint32_t sample_in_block = 0;
};

/// A sample inside a block.
struct BlockSample {
  std::uint32_t block = 0;
  std::uint32_t index = 0;
};

/// A batch, or a sample, that never comes.
inline constexpr std::uint64_t kNever = 0xffff'ffff'ffff'ffffU;

/// How slots of batches map to the epoch from `start` on: a run with one global batch size. `start`
/// samples of the epoch were delivered before (possibly with other batch sizes).
struct Segment {
  std::uint64_t start =
      0;  ///< t at which this global batch size began; in a state: what was received so far.
  std::uint64_t global_batch = 1;  ///< G >= 1, samples.

  /// End of its last full batch in an epoch of `sample_count` samples; `start` when there is none.
  std::uint64_t full_end(std::uint64_t sample_count) const noexcept {
    const std::uint64_t left = sample_count > start ? sample_count - start : 0;
    return start + left - left % global_batch;
  }
  bool operator==(const Segment&) const = default;
};

struct BatchPlan;

class LaneOrder;

class EpochOrder {
 public:
  /// Plans one epoch of an order of lanes: O(B) time, about 12 bytes per block. `block_samples` is
  /// the sample count of each block in dataset order (copied). Errors: kInvalidArgument (empty
  /// table, zero counts, lane_count > N, bundle does not divide lanes, wrong digest), kUnsupported
  /// (unknown id or version).
  static Result<std::shared_ptr<const LaneOrder>> create(
      const OrderSpec& spec, std::span<const std::uint32_t> block_samples, std::uint64_t epoch);
  virtual ~EpochOrder() = default;

  virtual const OrderSpec& spec() const noexcept = 0;
  virtual std::uint64_t epoch() const noexcept = 0;
  virtual std::uint64_t sample_count() const noexcept = 0;  ///< N
  /// What is known only of orders whose lanes are read from front to back. nullptr for an order
  /// given sample by sample (create_listed_order): its lane b is block b, with one window that
  /// holds the block, and lanes are visited in any sequence, with repeats.
  virtual const LaneOrder* lanes() const noexcept { return nullptr; }

  /// Where global sample `t` of the epoch comes from, under `segment`. O(1). \pre segment.start <=
  /// t < N.
  virtual LanePosition locate(std::uint64_t t, const Segment& segment) const = 0;
  /// The same for samples [t, t + out.size()).
  virtual void locate_run(std::uint64_t t, const Segment& segment,
                          std::span<LanePosition> out) const;
  /// The window that holds `position` of `lane`. O(log B). \pre position lies in the lane.
  virtual Window window_at(std::uint32_t lane, std::uint64_t position) const = 0;
  /// The sample at `position` (of the lane) inside `window`. O(1). Defined here because it is per
  /// sample: see order_math.h.
  virtual WindowSample sample_at(const Window& window, std::uint64_t position) const = 0;
  /// Dataset position of a block's first sample.
  virtual std::uint64_t block_first_sample(std::uint32_t block) const = 0;

  /// The two above in one, for samples one by one. O(log B). \pre the slot is not empty.
  virtual BlockSample find(const LanePosition& place) const;
  /// Dataset position of global sample `t`: for lists, tests and reports. O(log B). \pre the slot
  /// is not empty.
  std::uint64_t dataset_position(std::uint64_t t, const Segment& segment) const;
  /// Largest sum over any window of any lane of weight(block) * share of the block, used to plan
  /// memory: the caller gives bytes per block; partial pieces count in full. O(B).
  virtual std::uint64_t largest_window_weight(std::span<const std::uint64_t> block_bytes) const = 0;
};

/// An order of lanes that are read from front to back: what can be known of them without a look at
/// each sample.
class LaneOrder : public EpochOrder {
 public:
  const LaneOrder* lanes() const noexcept final { return this; }

  virtual std::uint32_t lane_count() const noexcept { return spec().lane_count; }
  virtual std::uint64_t lane_length(std::uint32_t lane) const = 0;
  /// Positions of `lane` consumed by the prefix [0, t); here floor(t / C) + (lane < t mod C).
  virtual std::uint64_t lane_consumed(std::uint32_t lane, std::uint64_t t) const = 0;
  /// The other way round than locate(): the global sample at `position` of `lane`; rises with the
  /// position. Below segment.start for positions before the segment; kNever for those that the
  /// epoch does not reach. O(1).
  virtual std::uint64_t global_sample(std::uint32_t lane, std::uint64_t position,
                                      const Segment& segment) const = 0;
  /// Batch of `segment` (0: its first) that takes `position` of `lane`; 0 for positions before it.
  /// What is read ahead is read in this order. O(1).
  std::uint64_t batch_of(std::uint32_t lane, std::uint64_t position, const Segment& segment) const;
  /// Lanes that the full batches of `plan`'s rank touch, in order of first touch.
  virtual std::vector<std::uint32_t> own_lanes(const BatchPlan& plan) const;
  /// How many of `world_size` ranks read a lane on average; 1 where each has lanes of its own.
  /// \pre world_size divides global_batch.
  virtual double lane_readers(std::uint64_t global_batch, std::uint32_t world_size) const;
};

/// The samples of an epoch one by one: how orders of other loaders are given. Immutable; any
/// thread.
class SampleList {
 public:
  virtual ~SampleList() = default;
  /// Slots of the epoch, empty ones included.
  virtual std::uint64_t size() const noexcept = 0;
  /// Dataset positions of slots [t, t + out.size()); -1 where a slot is empty. O(out.size()).
  /// \pre t + out.size() <= size().
  virtual void read(std::uint64_t t, std::span<std::int64_t> out) const = 0;
};

/// An order that delivers `list`: global sample t is slot t. sample_count() is the size of the
/// list; locate() of an empty slot gives kNoLane. The caller sees that every id is a position of
/// the dataset. `spec` is kept as its identity. Errors: kInvalidArgument (empty table, zero
/// counts).
Result<std::shared_ptr<const EpochOrder>> create_listed_order(
    const OrderSpec& spec, std::span<const std::uint32_t> block_samples, std::uint64_t epoch,
    std::shared_ptr<const SampleList> list);

/// Digest of a block table for OrderSpec::block_table_digest. O(B).
std::uint64_t block_table_digest(std::span<const std::uint32_t> block_samples) noexcept;

/// What happens with the last, incomplete global batch of an epoch.
enum class EpochEnd : std::uint8_t {
  kPad,  ///< Filled up by repeating its own samples; the mask is false for repeats. Every rank gets
         ///< equal batches.
  kDrop,    ///< Not delivered.
  kUneven,  ///< Shared out as evenly as it goes; ranks may differ by one sample, and some may get
            ///< none.
};

/// Batches of one rank: slots of global batches mapped to global samples. Pure.
struct BatchPlan {
  Segment segment;
  std::uint64_t sample_count = 0;  ///< N
  std::uint32_t rank = 0;
  std::uint32_t world_size = 1;  ///< Divides segment.global_batch.
  EpochEnd epoch_end = EpochEnd::kPad;

  /// Global batches left in this segment until the end of the epoch, the incomplete one included
  /// unless dropped.
  std::uint64_t batch_count() const noexcept;
  struct Slots {
    std::uint64_t first = 0;  ///< Global sample t of this rank's first slot.
    std::uint32_t count = 0;  ///< Slots of this rank, repeats included.
    std::uint64_t end =
        0;  ///< First t that is not a sample of this global batch (start + (k+1)G, or N).
    std::uint64_t batch_start = 0;  ///< t of the first slot of the global batch.
    /// Global sample of slot i, and whether it is a real one (false: a repeat that fills up).
    std::uint64_t sample(std::uint32_t i) const noexcept;
    bool is_real(std::uint32_t i) const noexcept { return first + i < end; }
  };
  /// This rank's slots of the k-th batch of the segment. \pre k < batch_count().
  Slots slots(std::uint64_t k) const noexcept;
  /// t after the k-th batch has been received by all: start + (k+1)G, at most N.
  std::uint64_t t_after(std::uint64_t k) const noexcept;
  bool operator==(const BatchPlan&) const = default;
};

/// How well an epoch order mixes, compared with a full shuffle. Sampled: at most `probe_count`
/// places.
struct OrderQuality {
  double mean_jump = 0;          ///< Mean |distance| of dataset positions of consecutive samples.
  double mean_jump_full = 0;     ///< The same for a full shuffle: (N + 1) / 3 (expected value).
  double mean_displacement = 0;  ///< Mean |position in epoch - position in dataset|, over N.
  double neighbour_correlation =
      0;  ///< Pearson correlation of consecutive dataset positions (full shuffle: 0).
  double blocks_per_batch = 0;  ///< Mean number of distinct blocks in a global batch.
};
OrderQuality measure_quality(const EpochOrder& order, const Segment& segment,
                             std::uint64_t probe_count = 1 << 20);

/// What the number of lanes of a first run is chosen from.
struct LaneNeeds {
  std::uint64_t global_batch = 1;   ///< G, samples.
  std::uint64_t sample_count = 1;   ///< N
  std::uint32_t block_count = 1;    ///< B
  std::uint32_t window_blocks = 2;  ///< W
  std::uint64_t window_bytes = 1;   ///< Bytes of the largest window.
  std::uint64_t memory_bytes = 1;   ///< Memory of one rank for windows.
};
struct LaneChoice {
  std::uint32_t lane_count = 1;
  std::uint32_t bundle_lanes = 1;
};
/// Lanes for a first run: the largest divisor (or multiple) of the global batch that is at most 64,
/// or G / 8 where that is more; never more than one rank could hold (memory / 1.5 windows) or the
/// dataset fills (B / W, but 8 where it has several blocks: cut lanes mix them). That limit itself
/// where such a divisor would be less than a quarter of it. World size plays no part, so runs that
/// differ only in it see the same order. See docs/order.md.
LaneChoice choose_lanes(const LaneNeeds& needs);
/// OrderSpec::bundle_lanes for a number of lanes: 2 where that leaves at least 8 bundles, else 1.
std::uint32_t bundle_of(std::uint32_t lane_count) noexcept;

}  // namespace headrace
