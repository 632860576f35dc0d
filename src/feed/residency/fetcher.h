#pragma once
/// \file
/// Fetcher: reads pieces of blocks through one store handle and inflates or unpacks them, within
/// the pool's memory.
///
/// Place: the feeder decides what to read and when; the fetcher only carries it out.
///
/// Threads: all functions from the feed thread; the thread pool inflates and unpacks, which may
/// take Python's GIL: whoever joins the feed thread must not hold it. wake() from any thread.
#include <algorithm>
#include <atomic>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/mutex.h"
#include "base/thread_pool.h"
#include "feed/residency/slab_sizes.h"
#include "feed/residency/unpack_room.h"
#include "feed/stall.h"
#include "headrace/dataset.h"
#include "headrace/memory.h"
#include "headrace/order.h"
#include "headrace/second_look.h"
#include "headrace/store.h"
#include "insight/counter.h"
#include "io/read_ahead_room.h"
#include "mem/slab_lender.h"
#include "read/request_plan.h"
#include "store/submit_queue.h"

namespace headrace::feed {

/// One read: samples [piece.begin, piece.end) of a block. kPlanned -> kReading -> (kInflating ->)
/// kReady | kFailed. One whose block takes more memory than was expected, and than there is now,
/// goes back to kPlanned: what it needs is remembered, and begin() takes that much.
struct Fetch : std::enable_shared_from_this<Fetch> {
  enum class State : std::uint8_t { kPlanned, kReading, kInflating, kReady, kFailed };

  Piece piece;
  State state = State::kPlanned;
  bool is_abandoned = false;  ///< Nobody wants it any more; it ends without being looked at.
  Status error;               ///< kFailed: why, with the dataset position.
  bool is_block_bad = false;  ///< kFailed: the bytes came, and could not be made ready to cut.
  BlockBytes bytes;           ///< kReady.
  Timeline timeline;
  /// Read on a connection of its own, past caches: what came before made no sense.
  bool is_fresh = false;
  std::uint64_t digest = 0;  ///< kReady, is_fresh: of the bytes as read.
  Slab stored;               ///< Bytes as read.
  Slab raw;                  ///< Inflated bytes; of an unpacked block what its arena begins with.
  std::optional<SlabArena> arena;  ///< Of an unpacked block, from when it is unpacked.
  std::shared_ptr<const UnpackedBlock> unpacked;

  std::size_t request_count() const noexcept { return head_count + extents.size(); }
  /// What it has of the pool now. \pre Not under way.
  std::uint64_t held_bytes() const noexcept {
    return charged_bytes_of(stored) + charged_bytes_of(raw) + charged_bytes_of(reserved) +
           (arena ? arena->charged_bytes() : 0);
  }
  bool is_under_way() const noexcept {
    return state == State::kReading || state == State::kInflating;
  }
  /// Gives back the memory of one that is not under way.
  void release() noexcept {
    bytes = {};
    lender.reset();
    stored = Slab();
    unpacked.reset();
    arena.reset();
    raw = Slab();
    reserved = Slab();
  }

  std::uint64_t charged_bytes = 0;  ///< Its part of its window's.

  // The fetcher's own.
  std::uint32_t sharer_count = 0;  ///< Owners besides one: share().
  std::uint32_t pin_count = 0;
  std::uint64_t pin_mark = 0;  ///< Of the last batch that pinned it.
  std::uint64_t id = 0;
  std::uint64_t size_bytes = 0;          ///< Of the stored bytes; their slab may be larger.
  std::vector<Extent> extents;           ///< One request each.
  std::vector<read::CutObject> objects;  ///< Compared as a whole once all is there.
  std::size_t head_count = 0;            ///< Requests for their sums; these go first.
  /// Of `stored`; its parts travel with requests.
  std::optional<mem::SlabLender> lender;
  std::size_t next_request = 0;
  std::size_t requests_done = 0;
  std::size_t requests_out = 0;
  bool was_put_off = false;  ///< As many requests were out as may be.
  SecondLook look;
  Slab reserved;           ///< For the unpacker, before it begins.
  UnpackRoom::Lease room;  ///< While it is unpacked.
};

class Fetcher {
 public:
  struct Options {
    std::chrono::milliseconds read_timeout{120'000};
    std::uint64_t large_request_bytes = 0;  ///< As in LoaderOptions.
    ThreadPool* workers = nullptr;  ///< That inflate and unpack; needed where blocks want it.
    Clock* clock = nullptr;
    SlabSizes sizes;
    std::uint64_t workspace_bytes = 0;  ///< Reserved for unpacking a block at a time.
  };
  enum class Begin : std::uint8_t { kBegun, kNoMemory, kNever };

  Fetcher(std::shared_ptr<const Dataset> dataset, std::unique_ptr<Store> store, SlabPool& pool,
          const Options& options);
  /// shut_down().
  ~Fetcher();
  Fetcher(const Fetcher&) = delete;
  Fetcher& operator=(const Fetcher&) = delete;

  /// Takes the memory for a planned fetch and submits its requests. kNoMemory: nothing happened.
  /// kNever: it is larger than the limit; the fetch is kFailed (kExhausted). After kBegun the fetch
  /// may be kPlanned again at any time, this call included.
  Begin begin(const std::shared_ptr<Fetch>& fetch);
  /// Gives a fetch up: its memory returns now, or as soon as the store lets go of it. One that is
  /// shared has an owner less, and nothing else changes.
  void abandon(Fetch& fetch);
  /// Adds an owner to a fetch that is under way or kReady.
  void share(Fetch& fetch) noexcept;
  /// Keeps the memory of a fetch that is kReady until unpin(), even when it is given up meanwhile.
  /// `pins`: where it is added, once for each `mark`, which is of new_pin_mark().
  void pin(Fetch& fetch, std::uint64_t mark, std::vector<std::shared_ptr<Fetch>>& pins);
  void unpin(Fetch& fetch);
  /// One for each batch, of whatever run: a fetch may serve several.
  std::uint64_t new_pin_mark() noexcept { return ++pin_mark_; }
  /// Waits for completions until `until`, a wake() or the end of an inflation, and takes them in.
  void poll(TimePoint until);
  /// Stops the store and waits for everything under way; only wake() and append_metrics() may be
  /// called after it. \pre The workers have ended.
  void shut_down();
  /// Nothing is under way that would return memory by itself.
  bool is_idle() const noexcept { return queue_.in_flight() == 0 && inflating_count_ == 0; }
  /// The most memory that a block turned out to take, of those that were put back for it; 0: none
  /// was.
  std::uint64_t most_needed_bytes() const noexcept;
  /// Of the pool, what no fetch holds.
  std::uint64_t workspace_bytes() const noexcept { return room_.standing_bytes(); }
  bool is_local() const { return store_->traits().is_local; }
  const io::Arrivals& arrivals() const noexcept { return arrivals_; }
  /// That much read-ahead has come to be taken without a wait: so much may be asked for at once.
  void allow_out(std::uint64_t bytes) noexcept {
    most_out_bytes_ = std::max(most_out_bytes_, bytes);
  }
  /// Fetches given up whose memory has not come back yet: under way, or pinned.
  std::size_t abandoned_count() const noexcept { return abandoned_count_; }

  /// What a read asked for last, for messages: "s3://b/shard.mds [0, 8388608)"; empty where nothing
  /// was read. Any thread, until shut_down() has begun.
  std::string name_of(const Timeline& read) const;

  void wake() noexcept { store_->wake(); }
  void append_metrics(MetricList& out) const {
    append_counter(out, "loader.second_reads", "reads", second_reads_.value());
    append_counter(out, "loader.put_backs", "reads", put_backs_.value());
    store_->append_metrics(out);
  }

 private:
  /// What a block turned out to need.
  struct Needs {
    std::uint64_t raw_bytes = 0;   ///< Once unpacked; at least.
    std::uint64_t room_bytes = 0;  ///< While it is unpacked, besides what UnpackRoom reserves.
  };
  struct Inflated {
    std::uint64_t id = 0;
    Status status;
    std::uint64_t digest = 0;
    std::shared_ptr<const UnpackedBlock> unpacked;
    TimePoint at{};
  };

  /// Memory for a fetch: of the bytes as read, once ready, and for the unpacker. Errors: as the
  /// pool.
  Status acquire(Fetch& fetch, std::uint64_t stored_size);

  void pump();
  /// Whether another request may be built now.
  bool may_ask() const noexcept;
  void build_request(Fetch& fetch);
  void fail_unsent(const Status& why);
  void take(Completion completion);
  void take_answer(Fetch& fetch, std::size_t index, Completion& completion);
  void take_extent(Fetch& fetch, const Extent& extent, Completion& completion);
  void finish_reading(const std::shared_ptr<Fetch>& fetch);
  /// Hands read fetches to the workers, in order, as far as there is room to unpack.
  void start_inflating();
  Inflated inflate(Fetch& fetch) const;
  /// What can be told of the bytes as read, by sums and the format's digests.
  Status check_stored(const Fetch& fetch) const;
  /// Of a block that needs no inflating: takes what check_stored() said.
  void finish_plain(const std::shared_ptr<Fetch>& fetch, Status status);
  void take_inflated();
  /// Gives everything back: the fetch is to be begun again when there is what its block needs.
  void put_back(Fetch& fetch, const Needs& needs);
  /// Whether what came makes no sense and is being read again; `status` is then to be forgotten.
  /// Else it is what to say about it.
  bool is_read_again(const std::shared_ptr<Fetch>& fetch, Status& status);
  void finish(Fetch& fetch, Status status);
  void forget(Fetch& fetch);
  Status annotated(const Fetch& fetch, Status status) const;

  const std::shared_ptr<const Dataset> dataset_;
  const std::unique_ptr<Store> store_;
  SlabPool& pool_;
  const Options options_;
  Clock& clock_;
  std::uint64_t next_id_ = 1;
  std::uint64_t pin_mark_ = 0;
  std::unordered_map<std::uint64_t, std::shared_ptr<Fetch>> fetches_;  ///< Not ended yet, by id.
  std::vector<std::shared_ptr<Fetch>> pumping_;  ///< With extents not requested yet, oldest first.
  std::vector<Completion> inbox_;
  SubmitQueue queue_;  ///< Over store_.
  const read::CutRule cut_rule_;
  std::uint64_t bytes_out_ = 0;  ///< Of requests queued and in flight.
  /// Bytes asked for at once. A read's deadline begins when it is asked for, so the last of them
  /// must have time enough on a slow link: 2.2 MB/s for 256 MiB in the default 120 s.
  std::uint64_t most_out_bytes_ = std::uint64_t{256} << 20;
  io::Arrivals arrivals_;
  std::size_t abandoned_count_ = 0;
  std::size_t inflating_count_ = 0;  ///< Those that wait for room to unpack included.
  std::deque<std::shared_ptr<Fetch>> to_inflate_;
  UnpackRoom room_;
  std::unordered_map<std::uint32_t, Needs> needs_;  ///< Of blocks that once lacked memory.
  Counter second_reads_;
  Counter put_backs_;

  Mutex mutex_;
  std::vector<Inflated> inflated_ HEADRACE_GUARDED_BY(mutex_);
  std::vector<Inflated> inflated_taken_;
};

}  // namespace headrace::feed
