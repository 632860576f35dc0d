// Order of delivery is the order of jobs_: whoever finishes a job puts all that is done at the
// front into the channel, under the lock, so that two workers cannot overtake each other there.
//
// Memory: a worker only reads what the cut batch pins; unpinning is the feed thread's, because it
// owns the fetches. It is asked for when memory is wanted (take_finished), and costs no wake-up
// else.
//
// A batch that is decoded is a job of several parts: tasks that take the next few slots until none
// is left, so that one batch is made by all workers at once and the first is there soon. Slots are
// written by one task each; what they could not decode is collected under the lock. The job stays
// in jobs_ while its batch is repaired, which keeps its place in the order.
#include "feed/finish/finisher.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/check.h"

namespace headrace::feed {
namespace {

/// Of a batch that is decoded, so many slots are taken at a time: some 10 ms of images.
constexpr std::uint32_t kSlotsATime = 8;

}  // namespace

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
  if (parts_.workers == nullptr) return false;
  if (parts_.selection->has_decoders()) return true;
  return total_bytes >= parts_.hand_over_bytes && parts_.channel->is_empty();
}

Delivery Finisher::begin_batch(CutBatch& cut) const {
  Delivery delivery;
  delivery.batch = std::make_unique<BatchImpl>(parts_.waker, parts_.selection, std::move(cut.slab),
                                               cut.count, cut.identity, cut.replaced);
  delivery.batch->lay(cut.layout, cut.cuts, cut.needs, cut.ids, cut.mask);
  if (cut.is_redone) delivery.batch->fill_copies(cut.cuts);
  delivery.timeline = cut.timeline;
  if (parts_.selection->has_decoders()) delivery.timeline.decode_from = parts_.clock->now();
  return delivery;
}

Finisher::Job& Finisher::new_job(std::uint64_t generation) {
  Job& job = jobs_.emplace_back();
  job.generation = generation;
  job.ticket = next_ticket_++;
  return job;
}

Finisher::Job& Finisher::job_of(CutBatch& cut) {
  // Those of a job that is not done are all there, without gaps.
  return jobs_[cut.ticket - jobs_.front().ticket];
}

std::uint32_t Finisher::part_count(const CutBatch& cut) const {
  if (!parts_.selection->has_decoders()) return 1;
  const std::uint32_t slots = cut.slots_to_make();
  const std::uint32_t useful = (slots + kSlotsATime - 1) / kSlotsATime;
  return std::max(1U, std::min(useful, cut.thread_count));
}

void Finisher::finish(std::unique_ptr<CutBatch> cut) {
  const std::uint64_t generation = cut->generation;
  if (cut->pins.empty() && cut->kept.empty()) {
    HEADRACE_DCHECK(cut->bad.empty());
    Delivery delivery = begin_batch(*cut);
    delivery.batch->fill(cut->cuts, 0, cut->count, cut->bad);
    deliver(std::move(delivery), generation);
    reuse(std::move(cut));
    return;
  }
  const bool is_new = cut->ticket == 0;
  if (is_new) ++pending_count_;
  Job* job = nullptr;
  {
    MutexLock lock(mutex_);
    job = is_new ? &new_job(generation) : &job_of(*cut);
    cut->ticket = job->ticket;
    if (!cut->bad.empty()) {
      bad_.push_back(std::move(cut));
      return;
    }
  }
  job->delivery = begin_batch(*cut);
  std::uint32_t parts = part_count(*cut);
  job->next.store(0, std::memory_order_relaxed);
  job->parts_left.store(parts, std::memory_order_relaxed);
  job->cut = std::move(cut);
  // The queue's lock publishes all of it.
  while (parts-- > 0) {
    if (!parts_.workers->submit([this, job] { finish_part(*job); })) finish_part(*job);
  }
}

void Finisher::finish_part(Job& job) {
  CutBatch& cut = *job.cut;
  BatchImpl& batch = *job.delivery.batch;
  const bool is_decoded = parts_.selection->has_decoders();
  const std::uint32_t slots = cut.slots_to_make();
  const std::uint32_t step = is_decoded ? kSlotsATime : slots;
  std::vector<BadValue> bad;
  while (true) {
    const std::uint32_t begin = job.next.fetch_add(step, std::memory_order_relaxed);
    if (begin >= slots) break;
    const std::uint32_t end = std::min(slots, begin + step);
    if (!cut.is_redone) {
      batch.fill(cut.cuts, begin, end, bad);
    } else {
      for (std::uint32_t i = begin; i < end; ++i)
        batch.fill(cut.cuts, cut.redo[i], cut.redo[i] + 1, bad);
    }
  }
  if (!bad.empty()) {
    MutexLock lock(mutex_);
    std::move(bad.begin(), bad.end(), std::back_inserter(cut.bad));
  }
  // Whoever is last sees what the others wrote.
  if (job.parts_left.fetch_sub(1, std::memory_order_acq_rel) == 1) end_job(job);
}

void Finisher::end_job(Job& job) {
  // All of it under the lock: as soon as it is free, whoever waits for the last job may destroy
  // this.
  const TimePoint now = parts_.clock->now();
  MutexLock lock(mutex_);
  if (job.cut->bad.empty()) {
    job.is_done = true;
    if (job.delivery.timeline.decode_from != TimePoint()) job.delivery.timeline.decode_until = now;
    finished_.push_back(std::move(job.cut));
    flush();  // Ends the job.
    if (std::exchange(must_wake_, false)) parts_.wake();
  } else {
    job.cut->slab = job.delivery.batch->take_slab();
    job.delivery.batch.reset();
    job.cut->is_redone = true;
    job.cut->is_stripped = false;
    job.cut->redo.clear();
    bad_.push_back(std::move(job.cut));
    parts_.wake();
  }
  done_.notify_all();
}

std::unique_ptr<CutBatch> Finisher::take_bad() {
  if (is_idle()) return nullptr;
  MutexLock lock(mutex_);
  const auto first = std::min_element(
      bad_.begin(), bad_.end(), [](const auto& a, const auto& b) { return a->ticket < b->ticket; });
  if (first == bad_.end()) return nullptr;
  std::unique_ptr<CutBatch> cut = std::move(*first);
  bad_.erase(first);
  return cut;
}

void Finisher::put_bad(std::unique_ptr<CutBatch> cut) {
  MutexLock lock(mutex_);
  bad_.push_back(std::move(cut));
}

void Finisher::fail(std::unique_ptr<CutBatch> cut, Status error) {
  MutexLock lock(mutex_);
  Job& job = job_of(*cut);
  job.delivery.error = std::move(error);
  job.delivery.timeline = cut->timeline;
  job.is_done = true;
  finished_.push_back(std::move(cut));
  flush();
}

void Finisher::deliver(Delivery delivery, std::uint64_t generation) {
  MutexLock lock(mutex_);
  Job& job = new_job(generation);
  job.delivery = std::move(delivery);
  job.is_done = true;
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
  while (finished_.empty() && bad_.empty()) lock.wait(done_);
}

}  // namespace headrace::feed
