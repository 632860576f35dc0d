#pragma once
/// \file
/// Channel: assembled batches on their way from the feed thread to the training loop, and orders
/// the other way.
///
/// Threads: the feed thread on one side, the loader's callers on the other.
#include <condition_variable>
#include <deque>
#include <memory>
#include <optional>
#include <stop_token>

#include "base/mutex.h"
#include "feed/finish/batch.h"

namespace headrace::feed {

/// A run of batches: from a position to the end of its epoch.
struct Run {
  std::shared_ptr<const EpochOrder> order;
  BatchPlan plan;
  std::uint64_t batch_count = 0;     ///< Batches of this rank in the plan.
  std::uint64_t batches_before = 0;  ///< Of the epoch, before the plan.
  std::uint64_t generation = 0;
  bool is_read_before = false;  ///< Its windows are read before it begins: no batch is singly.
  /// Of several epochs that are known to be taken; is_last: of these.
  bool is_one_of_more = false;
  bool is_last = false;
  /// The run of the next epoch, which may be read ahead; null: it is not known that there is one.
  /// Given as a run of its own later, it has the same order object and plan: a run of that order
  /// with another plan begins elsewhere in the epoch.
  std::shared_ptr<const Run> following = nullptr;
};

/// What the feed thread delivers: a batch, or the error that stands in its place, or neither for a
/// batch whose every slot is empty.
struct Delivery {
  std::unique_ptr<BatchImpl> batch;
  Status error;
  BatchTimeline timeline;
};

class Channel {
 public:
  explicit Channel(Clock& clock) : clock_(clock) {}

  // --- the loader's side ---
  /// Replaces the run (nullopt: no more work), discards what was delivered, sets how many batches
  /// may wait.
  void set_run(std::optional<Run> run, std::uint32_t capacity);
  /// How many batches may wait from now on.
  void set_capacity(std::uint32_t capacity);
  /// Ends everything; take() and next_run() return.
  void stop();
  /// Waits for the next delivery. nullopt: stopped, `until` passed or `stop` requested (the caller
  /// looks which). An error is left in place. `waited` becomes the interval of the wait, if there
  /// was one. `must_wake`: the feed thread has room again.
  std::optional<Delivery> take(TimePoint until, const std::stop_token& stop, WaitInterval& waited,
                               bool& must_wake);
  bool is_stopped();

  // --- the feed thread's side ---
  /// The run to work on if its generation is another than `generation`, which then becomes that.
  std::optional<Run> new_run(std::uint64_t& generation, bool& has_changed);
  /// Whether another batch of this generation may be put, when `coming` ones are on their way.
  /// False also when the generation is over.
  bool has_room(std::uint64_t generation, std::size_t coming);
  /// Dropped when the generation is over.
  void put(Delivery delivery, std::uint64_t generation);
  bool is_empty() const;
  /// As many batches wait as may, or the feed thread holds them all.
  bool is_full() const;

 private:
  Clock& clock_;
  mutable Mutex mutex_;
  std::condition_variable filled_;
  std::deque<Delivery> ready_ HEADRACE_GUARDED_BY(mutex_);
  std::optional<Run> run_ HEADRACE_GUARDED_BY(mutex_);
  std::uint64_t generation_ HEADRACE_GUARDED_BY(mutex_) = 0;
  std::uint32_t capacity_ HEADRACE_GUARDED_BY(mutex_) = 1;
  bool is_full_ HEADRACE_GUARDED_BY(mutex_) = false;  ///< The feed thread found no room and sleeps.
  bool is_awaited_ HEADRACE_GUARDED_BY(mutex_) = false;
  bool is_stopped_ HEADRACE_GUARDED_BY(mutex_) = false;
};

}  // namespace headrace::feed
