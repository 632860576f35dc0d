#pragma once
/// \file
/// Finisher: makes batches of cut batches, several at once on the workers, and puts them into the
/// channel in order.
///
/// A batch whose values are copied is finished where it was cut, on the feed thread, unless the
/// training loop waits and the copy is worth a hand-over: the worker then copies while the feed
/// thread cuts the next one. Where values are decoded, all workers take slots of a batch until
/// there are none left.
///
/// Threads: all functions from the feed thread; workers run finish_part().
#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "base/mutex.h"
#include "base/thread_pool.h"
#include "feed/assemble/cut_batch.h"
#include "feed/finish/channel.h"

namespace headrace::feed {

class Finisher {
 public:
  struct Parts {
    std::shared_ptr<Waker> waker;
    std::shared_ptr<const Selection> selection;
    Channel* channel = nullptr;
    /// nullptr: all is finished on the feed thread. Needed where values are decoded.
    ThreadPool* workers = nullptr;
    Clock* clock = nullptr;
    std::function<void()> wake;         ///< Wakes the feed thread; any thread, never blocks.
    std::uint64_t hand_over_bytes = 0;  ///< LoaderOptions::hand_over_bytes, for batches of copies.
  };
  explicit Finisher(Parts parts);
  /// Waits for the workers. \pre release() of all that take_finished() gives.
  ~Finisher();
  Finisher(const Finisher&) = delete;
  Finisher& operator=(const Finisher&) = delete;

  /// An empty one, to be cut into.
  std::unique_ptr<CutBatch> new_batch();
  /// Whether finish() hands over a batch of this size: its bytes must then be pinned before.
  bool is_handed_over(std::size_t total_bytes) const;
  /// Makes a batch of it and delivers it after all that came before. What has bad values already,
  /// or gets them, comes back by take_bad() first; given again, it keeps its place.
  void finish(std::unique_ptr<CutBatch> cut);
  /// A batch with bad values, to be given to finish() again or to fail(); nullptr: there is none.
  /// The first of them in order.
  std::unique_ptr<CutBatch> take_bad();
  /// Takes it back, to be repaired later.
  void put_bad(std::unique_ptr<CutBatch> cut);
  /// Delivers an error in the place of one that take_bad() gave.
  void fail(std::unique_ptr<CutBatch> cut, Status error);
  /// Delivers what is no batch (an error, or nothing) after all that came before.
  void deliver(Delivery delivery, std::uint64_t generation);

  /// How many decode a batch at once.
  std::uint32_t thread_count() const noexcept {
    return parts_.workers == nullptr ? 1
                                     : static_cast<std::uint32_t>(parts_.workers->thread_count());
  }
  /// Batches handed over whose memory did not come back yet by take_finished().
  std::size_t pending_count() const noexcept { return pending_count_; }
  bool is_idle() const noexcept { return pending_count_ == 0; }
  /// Batches on their way to the channel.
  std::size_t undelivered_count();
  /// One that is finished, to be unpinned and given to reuse(); nullptr: there is none now.
  /// `must_wake`: when there is none, the next to be finished wakes the feed thread.
  std::unique_ptr<CutBatch> take_finished(bool must_wake);
  void reuse(std::unique_ptr<CutBatch> cut);
  /// Waits for one that was handed over, finished or bad. \pre !is_idle().
  void wait();

 private:
  struct Job {
    std::unique_ptr<CutBatch> cut;  ///< Until it is finished; null for what is no batch.
    Delivery delivery;
    std::uint64_t generation = 0;
    std::uint64_t ticket = 0;
    bool is_done = false;
    /// Of the slots to be made (all, or those of CutBatch::redo), the first that nobody has taken.
    std::atomic<std::uint32_t> next{0};
    std::atomic<std::uint32_t> parts_left{0};
  };

  Delivery begin_batch(CutBatch& cut) const;
  Job& new_job(std::uint64_t generation) HEADRACE_REQUIRES(mutex_);
  Job& job_of(CutBatch& cut) HEADRACE_REQUIRES(mutex_);
  std::uint32_t part_count(const CutBatch& cut) const;
  /// Makes slots until none is left; who ends last ends the job.
  void finish_part(Job& job);
  void end_job(Job& job);
  /// Puts what is done into the channel, in order.
  void flush() HEADRACE_REQUIRES(mutex_);

  const Parts parts_;
  std::vector<std::unique_ptr<CutBatch>> spare_;
  std::size_t pending_count_ = 0;

  Mutex mutex_;
  std::condition_variable done_;
  /// In order of delivery, from the first not delivered on. A deque: jobs do not move.
  std::deque<Job> jobs_ HEADRACE_GUARDED_BY(mutex_);
  std::uint64_t next_ticket_ HEADRACE_GUARDED_BY(mutex_) = 1;
  std::vector<std::unique_ptr<CutBatch>> finished_ HEADRACE_GUARDED_BY(mutex_);
  std::vector<std::unique_ptr<CutBatch>> bad_ HEADRACE_GUARDED_BY(mutex_);
  bool must_wake_ HEADRACE_GUARDED_BY(mutex_) = false;
};

}  // namespace headrace::feed
