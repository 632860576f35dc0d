#pragma once
/// \file
/// Loader: batches of one rank, in the order fixed by (dataset, seed, epoch), with a hard memory
/// limit and an exact state.
///
/// Place: src/feed/. Owns the pipeline plan -> fetch -> (decompress) -> cut -> gather into batch
/// buffers; knows no Python.
///
/// Threads: next(), load_state(), start_epoch() from one thread at a time; state(), stats(), stop()
/// from any thread. Batches may be destroyed on any thread, also after the Loader: the memory stays
/// alive until the last is gone.
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "headrace/dataset.h"
#include "headrace/decode.h"
#include "headrace/memory.h"
#include "headrace/metrics.h"
#include "headrace/order.h"
#include "headrace/order_source.h"
#include "headrace/output_column.h"
#include "headrace/quarantine.h"
#include "headrace/range_fetcher.h"
#include "headrace/status.h"
#include "headrace/store.h"

namespace headrace {

class ValueCache;

/// What a sample does that turns out to be bad while it is read.
enum class OnBadSample : std::uint8_t {
  kRaise,    ///< next() fails.
  kReplace,  ///< Another sample of its source is delivered in its place.
};

/// Whether decoded values are kept in LoaderOptions::value_cache, to be read there in the next
/// epoch instead of being decoded. Only those of columns with values of one size, which nothing
/// random decides (ValueDecoder::identity()).
enum class CacheDecoded : std::uint8_t {
  kAuto,    ///< Of columns where that was measured to be worth it, if all fit into the cache.
  kAlways,  ///< As far as there is room.
  kOff,
};

struct LoaderOptions {
  std::uint32_t batch_size = 1;  ///< Samples a rank; global batch = batch_size * world_size.
  std::uint32_t rank = 0;
  std::uint32_t world_size = 1;
  std::string order = "headrace";  ///< Or "sequential".
  std::uint64_t seed = 0;
  /// Where the order comes from; nullptr: made from `order`, `seed`, `window_blocks` and
  /// `lane_count`, which are unused otherwise.
  std::shared_ptr<const OrderSource> order_source = nullptr;
  EpochEnd epoch_end = EpochEnd::kPad;
  /// Window of the order in blocks; 0: 2, or 1 where blocks are whole compressed shards.
  std::uint32_t window_blocks = 0;
  std::uint32_t lane_count = 0;  ///< 0: choose_lanes().
  /// Memory of a rank that the order is made for; 0: the limit of the pool. Where a part of the
  /// memory serves something else (a cache's buffers), the order is still that of a run without.
  std::uint64_t order_memory_bytes = 0;
  /// Epochs that the training loop takes in all: it takes another after epoch e where e + 1 is
  /// less. Reading then goes on into that one while the end of epoch e is delivered, as far as
  /// memory allows; of orders with lanes only. 0: not known, and nothing is read that nobody may
  /// want.
  std::uint64_t epoch_count = 0;
  /// Blocks stay in memory for the next epoch: of a dataset that has room all, where epoch_count
  /// says that one follows; else as much as reading ahead has room anyway. They give way to
  /// whatever this loader needs memory for, but not to others that share its pool. Without effect
  /// above a cache that keeps by next use (Store::wants_foresight()).
  bool keep_in_memory = true;
  /// Batches assembled ahead of the training loop, upper bound. 1 .. 1024.
  std::uint32_t prefetch_batches = 16;
  /// Threads that decompress, unpack and finish batches. 0: one less than the cores, at least 1, at
  /// most 4.
  std::uint32_t worker_count = 0;
  /// Batches of this many bytes and more are finished by these threads while the training loop
  /// waits, others where they are put together: a hand-over costs some microseconds on both sides.
  /// With fewer than four cores all are, unless worker_count is set.
  std::uint64_t hand_over_bytes = std::uint64_t{1} << 20;
  /// Column names to deliver; empty: all.
  std::vector<std::string> columns = {};
  /// What is made of the values of columns, by name. Others are delivered as they are stored.
  std::map<std::string, std::shared_ptr<const Decode>> decode = {};
  /// Where decoded values may be kept: open_value_cache() of the cache that the store is read
  /// through; nullptr: nowhere.
  std::shared_ptr<ValueCache> value_cache = nullptr;
  CacheDecoded cache_decoded = CacheDecoded::kAuto;
  std::chrono::milliseconds read_timeout{
      120'000};  ///< Deadline of one block read, all attempts together.
  /// Larger reads are cut into requests of about the same size, this at most; those of whole
  /// objects from four times that on, and not where the store tells no sum to compare them with
  /// (ObjectSums). 0: 4 MiB, and no cuts where the store is local.
  std::uint64_t large_request_bytes = 0;
  OnBadSample on_bad_sample = OnBadSample::kRaise;
  /// Samples that are never delivered, others in their place, whatever on_bad_sample says. Any
  /// order. Its digest is part of the state.
  std::vector<SampleRange> quarantine = {};
  /// First block of each source of a dataset that is made of several, ascending: what stands in for
  /// a sample comes from the same source. Empty: one source.
  std::vector<std::uint32_t> source_blocks = {};
  Clock* clock = nullptr;  ///< nullptr: system_clock().
};

/// What a column is in a batch when nothing is made of its values.
inline OutputColumn output_of(const Column& column) {
  return {.name = column.name,
          .encoding = column.encoding,
          .dtype = column.dtype,
          .shape = column.shape,
          .fixed_size_bytes = column.fixed_size_bytes};
}

/// Values of one column of a batch.
struct BatchColumn {
  const OutputColumn* column = nullptr;  ///< Of the batch's schema.
  /// Fixed-size column: count * fixed_size_bytes, C order, value i at i * fixed_size_bytes.
  /// Otherwise: the values back to back; value i is bytes [offsets[i], offsets[i + 1]).
  std::span<std::byte> values;
  std::span<const std::uint64_t> offsets;  ///< Empty for a fixed-size column, else count + 1.
  std::span<const std::uint8_t>
      present;  ///< Empty when every sample has the column, else count flags.
};

/// A slot whose sample is bad: another stands in for it.
struct ReplacedSample {
  std::uint32_t slot = 0;
  std::int64_t planned_id = 0;  ///< Dataset position of the bad sample.
};

/// Something that turned out bad while it was read, and was replaced.
struct BadSample {
  std::uint64_t position = 0;      ///< Dataset position.
  std::uint64_t sample_count = 1;  ///< More than 1: a whole block.
  std::string message;
};

/// Where a whole batch lies, for processes that map it.
struct BatchMemory {
  SharedPlace place;
  std::span<const std::byte> bytes;  ///< All that the batch's spans point into.
};

/// One batch of this rank; owns its memory (from the pool).
class Batch {
 public:
  virtual ~Batch() = default;
  /// Slots, repeats included; those that a listed order leaves empty are not. > 0.
  virtual std::uint32_t count() const noexcept = 0;
  virtual std::span<const BatchColumn> columns() const noexcept = 0;
  virtual std::span<const std::int64_t> ids()
      const noexcept = 0;  ///< Dataset positions of what is delivered, one a slot.
  /// Slots where it is not what the order planned, ascending; repeats included.
  virtual std::span<const ReplacedSample> replaced() const noexcept = 0;
  virtual std::span<const std::uint8_t> mask()
      const noexcept = 0;  ///< 0: this slot repeats a sample to fill up the batch.
  virtual std::uint64_t epoch() const noexcept = 0;
  virtual std::uint64_t index()
      const noexcept = 0;  ///< Global batches of this epoch delivered before it, in this segment,
                           ///< plus those the state counted.
  /// nullopt: not in memory that other processes can map (Loader::share_batches()).
  virtual std::optional<BatchMemory> shared() const { return std::nullopt; }
};

/// Why the training loop waited. Order is stable; names: "memory", "throttled", "first_byte",
/// "transfer", "cache_read", "decompress", "decode", "transform", "other".
enum class StallCause : std::uint8_t {
  kMemory,
  kThrottled,
  kFirstByte,
  kTransfer,
  kCacheRead,
  kDecompress,
  kDecode,
  kTransform,
  kOther,
  kCount
};
std::string_view stall_cause_name(StallCause cause) noexcept;

class Loader {
 public:
  /// `store` is a handle that the loader takes over; `pool` bounds all its memory and may be
  /// shared. Errors: kInvalidArgument (rank >= world_size, unknown column or order), kExhausted
  /// (the memory limit is smaller than two batches, one batch's samples and the largest block:
  /// names both numbers and what to do).
  static Result<std::unique_ptr<Loader>> create(std::shared_ptr<const Dataset> dataset,
                                                std::unique_ptr<Store> store,
                                                std::shared_ptr<SlabPool> pool,
                                                const LoaderOptions& options);
  virtual ~Loader() = default;  ///< Stops the pipeline and joins its threads.

  /// Begins the epoch that the position names: after this next() delivers its batches. After the
  /// end of an epoch the position is the start of the following one. Calling it again in mid-epoch
  /// continues where next() stood. What makes an order here and below may wait for it (for another
  /// process that makes the same one): `stop`, here or of the loader, ends that with kCancelled,
  /// and nothing changes.
  virtual Status start_epoch(const std::stop_token& stop = {}) = 0;

  /// The next batch; nullopt at the end of the epoch. Blocks until one is ready, at most until
  /// `until` (kDeadline; call again), or `stop` (kCancelled). Begins the epoch where start_epoch()
  /// was not called, which may take longer. A failed read is returned here, names
  /// the object, and repeats until load_state().
  virtual Result<std::unique_ptr<Batch>> next(
      TimePoint until, std::stop_token stop = {}) = 0;  ///< nullptr: end of epoch.

  /// For a caller that hands batches to other processes: from now on they are made in memory that
  /// those can map, where the system has it. Returns how many the caller may hold at once without
  /// taking memory from reading, at most `wanted`: fewer are made ahead for that. Those that are
  /// ready stay as they are. 0: as it was. Any thread.
  virtual std::uint32_t share_batches(std::uint32_t wanted) = 0;

  /// Whether next() would return at once: a batch, an error or the end of the epoch is there. A
  /// hint; any thread.
  virtual bool is_ready() const = 0;

  /// Goes back before the batch that next() returned last, for a caller that could not use it:
  /// next() returns it again. Discards what was read ahead. One step only; nothing happens when
  /// there is none.
  virtual Status unread() = 0;

  /// Nothing is gained by reading faster just now: as many batches are ready as there may be, or no
  /// epoch has begun. A hint for whoever shares the line to the store; any thread.
  virtual bool is_ahead() const = 0;

  /// True while reading waits for memory that only the holders of delivered batches can give back.
  /// Any thread.
  virtual bool is_starved() const noexcept = 0;

  /// Position as JSON under 1 KiB: counts what next() returned. See docs/semantics.md for the
  /// fields.
  virtual std::string state() const = 0;
  /// What state() says now, to be written when it is asked for. Valid beyond the loader; any
  /// thread.
  virtual std::function<std::string()> state_later() const = 0;
  /// Goes to a position. Discards what was read ahead. Errors: kInvalidArgument naming the field
  /// that differs (dataset fingerprint, order id or version, seed, quarantine unless the state has
  /// none, malformed JSON); nothing changes then.
  virtual Status load_state(std::string_view json, const std::stop_token& stop = {}) = 0;

  /// Goes to the beginning of global batch `batch` of `epoch`, counted from the epoch's start in
  /// global batches of this loader. Discards what was read ahead. Errors: kInvalidArgument (the
  /// epoch has no such batch), those of OrderSource::plan(); nothing changes then. Same thread as
  /// next().
  virtual Status seek(std::uint64_t epoch, std::uint64_t batch,
                      const std::stop_token& stop = {}) = 0;

  /// Goes on from the position with another source of the same order id, version and seed (a
  /// mixture whose weights change). Discards what was read ahead. Errors: kInvalidArgument, those
  /// of OrderSource::plan(); nothing changes then. Same thread as next().
  virtual Status set_order_source(std::shared_ptr<const OrderSource> source,
                                  const std::stop_token& stop = {}) = 0;

  /// True from the last batch of an epoch on, until start_epoch() or load_state().
  virtual bool has_ended() const = 0;
  /// True from the last batch of this rank in an epoch on, which may be one before the last of all
  /// (kUneven): next() would say that the epoch has ended, and go into the next one.
  virtual bool has_taken_all() const = 0;
  /// From now on next() says that the epoch has ended, until start_epoch() or load_state(): for a
  /// loader that goes on in a loop where another has_ended(). Same thread as next().
  virtual void end_epoch() = 0;

  /// Batches of this rank from the current position to the end of the epoch. A listed order may
  /// leave all slots of some of them empty; those are counted here and passed over by next().
  virtual Result<std::uint64_t> batches_left(const std::stop_token& stop = {}) const = 0;
  /// The same for a whole epoch from its start, of the epoch of the position.
  virtual Result<std::uint64_t> epoch_batches(const std::stop_token& stop = {}) const = 0;
  virtual std::uint64_t epoch() const = 0;
  /// By block the first batch that needs one of its samples, counted from the position on and over
  /// the ends of epochs; kNever for blocks that `epochs` epochs (that of the position is the first)
  /// do not need. Of `ranks` ranks of the world from number `first_rank` on. Errors: those of
  /// OrderSource::plan(); kInvalidArgument (no such ranks).
  virtual Result<std::vector<std::uint64_t>> block_needs(
      std::uint64_t epochs, std::uint32_t first_rank, std::uint32_t ranks,
      const std::stop_token& stop = {}) const = 0;
  /// Dataset positions planned for this rank's k-th batch of `epoch` from its start (repeats and
  /// bad samples included, empty slots left out), without reading data. kNotFound past the end.
  virtual Result<std::vector<std::int64_t>> sample_ids(std::uint64_t epoch,
                                                       std::uint64_t batch_index,
                                                       const std::stop_token& stop = {}) const = 0;

  /// What turned out bad and was replaced, in the order in which it was found; the first 1,000. Any
  /// thread.
  virtual std::vector<BadSample> bad_samples() const = 0;

  /// "loader.*" and "stall.*_us" and those of the store and pool; see docs/metrics.md.
  virtual MetricList stats() const = 0;
  virtual OrderSpec order_spec() const = 0;
  /// How many ranks read a lane of the order on average (LaneOrder::lane_readers()): above 1,
  /// ranks read some of the same blocks.
  virtual Result<double> lane_readers(const std::stop_token& stop = {}) const = 0;
  virtual const Dataset& dataset() const = 0;
  /// Of every batch.
  virtual const BatchSchema& schema() const = 0;
  /// Ends reading; next() returns kCancelled. Any thread. Idempotent.
  virtual void stop() noexcept = 0;
};

/// As long as reading may lack memory that only the holders of batches can give back, before
/// next_batch() fails: other threads may drop batches soon.
inline constexpr std::chrono::milliseconds kStarvedLimit{15'000};

/// The next batch however long it takes; nullptr: end of the epoch. Calls `pause` between slices of
/// kPauseSlice. Errors: those of Loader::next(), kDeadline only of a read; kExhausted
/// (`starved_limit`: the batches that are held have all of the memory).
Result<std::unique_ptr<Batch>> next_batch(Loader& loader, const Pause& pause,
                                          std::chrono::milliseconds starved_limit = kStarvedLimit);

}  // namespace headrace
