// Order of delivery is the order of jobs_: whoever finishes a job puts all that is done at the
// front into the channel, under the lock, so that two workers cannot overtake each other there.
//
// Memory: a worker only reads what the cut batch pins; unpinning is the feed thread's, because it
// owns the fetches. It is asked for when memory is wanted (take_finished), and costs no wake-up
// else.
#include "feed/finish/finisher.h"

#include <utility>

#include "base/check.h"

namespace headrace::feed {

Finisher::Finisher(Parts parts) : parts_(std::move(parts)) {}

Finisher::~Finisher() { HEADRACE_CHECK(is_idle()); }

std::unique_ptr<CutBatch> Finisher::new_batch() {
  if (spare_.empty()) return std::make_unique<CutBatch>();
  std::unique_ptr<CutBatch> cut = std::move(spare_.back());
  spare_.pop_back();
  return cut;
}

void Finisher::reuse(std::unique_ptr<CutBatch> cut) {
  HEADRACE_DCHECK(cut->pins.empty());
  cut->clear();
  spare_.push_back(std::move(cut));
}

bool Finisher::is_handed_over(std::size_t total_bytes) const {
  return parts_.workers != nullptr && total_bytes >= parts_.hand_over_bytes &&
         parts_.channel->is_empty();
}

Delivery Finisher::make(CutBatch& cut) const {
  Delivery delivery;
  delivery.batch = std::make_unique<BatchImpl>(parts_.waker, parts_.selection, std::move(cut.slab),
                                               cut.count, cut.identity, std::move(cut.replaced));
  delivery.batch->fill(cut.layout, cut.cuts, cut.ids, cut.mask);
  delivery.timeline = cut.timeline;
  return delivery;
}

void Finisher::finish(std::unique_ptr<CutBatch> cut) {
  const std::uint64_t generation = cut->generation;
  if (cut->pins.empty() && cut->kept.empty()) {
    deliver(make(*cut), generation);
    reuse(std::move(cut));
    return;
  }
  ++pending_count_;
  Job* job = nullptr;
  {
    MutexLock lock(mutex_);
    job = &jobs_.emplace_back();
    job->cut = std::move(cut);
    job->generation = generation;
  }
  if (!parts_.workers->submit([this, job] { finish_one(*job); })) finish_one(*job);
}

void Finisher::finish_one(Job& job) {
  Delivery delivery = make(*job.cut);
  // All of it under the lock: as soon as it is free, whoever waits for the last job may destroy
  // this.
  MutexLock lock(mutex_);
  job.delivery = std::move(delivery);
  job.is_done = true;
  finished_.push_back(std::move(job.cut));
  flush();  // Ends the job.
  if (std::exchange(must_wake_, false)) parts_.wake();
  done_.notify_all();
}

void Finisher::deliver(Delivery delivery, std::uint64_t generation) {
  MutexLock lock(mutex_);
  jobs_.push_back(
      {.cut = nullptr, .delivery = std::move(delivery), .generation = generation, .is_done = true});
  flush();
}

void Finisher::flush() {
  while (!jobs_.empty() && jobs_.front().is_done) {
    parts_.channel->put(std::move(jobs_.front().delivery), jobs_.front().generation);
    jobs_.pop_front();
  }
}

std::size_t Finisher::undelivered_count() {
  if (is_idle()) return 0;
  MutexLock lock(mutex_);
  return jobs_.size();
}

std::unique_ptr<CutBatch> Finisher::take_finished(bool must_wake) {
  if (is_idle()) return nullptr;
  MutexLock lock(mutex_);
  if (finished_.empty()) {
    must_wake_ = must_wake;
    return nullptr;
  }
  std::unique_ptr<CutBatch> cut = std::move(finished_.back());
  finished_.pop_back();
  --pending_count_;
  return cut;
}

void Finisher::wait() {
  MutexLock lock(mutex_);
  while (finished_.empty()) lock.wait(done_);
}

}  // namespace headrace::feed
