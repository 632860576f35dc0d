// Invariant: a slot is taken from queue() until its completion was taken by next(), so that a
// request always has its names. Memory is taken when a read is submitted, never before: what waits
// holds none, and so a pool of one slab still gets everything read, one after the other.
#include "headrace/range_fetcher.h"

#include <algorithm>

#include "io/read_budget.h"
#include "store/submit_queue.h"

namespace headrace {
namespace {

// Completions taken at once, and so reads submitted at once, at most: enough to make the cost of a
// hand-over small.
constexpr std::size_t kMostTogether = 64;

}  // namespace

Result<std::unique_ptr<RangeFetcher>> RangeFetcher::create(Store& store, SlabPool& pool,
                                                           Options options) {
  HEADRACE_TRY_ASSIGN(auto handle, store.new_handle());
  auto fetcher = std::make_unique<RangeFetcher>(*handle, pool, std::move(options));
  fetcher->own_handle_ = std::move(handle);
  return fetcher;
}

RangeFetcher::RangeFetcher(Store& handle, SlabPool& pool, Options options)
    : handle_(handle),
      pool_(pool),
      options_(std::move(options)),
      own_budget_(options_.budget != nullptr
                      ? nullptr
                      : std::make_unique<io::ReadBudget>(options_.max_bytes)),
      budget_(options_.budget != nullptr ? *options_.budget : *own_budget_),
      queue_(std::make_unique<SubmitQueue>(handle)),
      // A part of them, so that the others are under way while the caller looks at these.
      inbox_(std::clamp<std::size_t>(options_.max_in_flight / 4, 1, kMostTogether)) {}

RangeFetcher::~RangeFetcher() {
  if (own_handle_) own_handle_->stop();
  for (std::size_t i = 0; i < slots_.size() && queue_->in_flight() > 0; ++i) handle_.cancel(i);
  queue_->drain();
  budget_.give_back(held_bytes_);
}

std::size_t RangeFetcher::pending() const noexcept {
  return waiting_.size() + queue_->pending() + ready();
}

Result<Slab> RangeFetcher::take_memory(std::uint64_t size_bytes) {
  // Else what is in flight gives its memory back first.
  const bool is_alone = queue_->pending() == 0;
  const std::uint64_t charge = SlabPool::charged_bytes(size_bytes);
  if ((!is_alone && held_bytes_ + charge > options_.max_bytes) ||
      !budget_.try_take(charge, is_alone))
    return Status(Code::kExhausted, "");
  auto slab = pool_.try_acquire(size_bytes);
  if (!slab && slab.error().code() == Code::kExhausted && is_alone) {
    slab = options_.acquire ? options_.acquire(size_bytes)
                            : pool_.acquire(size_bytes, options_.call.deadline);
  }
  if (slab) held_bytes_ += charge;
  if (!slab) budget_.give_back(charge);
  return slab;
}

Status RangeFetcher::submit_some(std::uint64_t* tag) {
  Status status;
  while (!waiting_.empty() && queue_->pending() < options_.max_in_flight) {
    const RangeRead read = waiting_.front();
    Slab slab;
    if (read.length_bytes > 0) {
      auto taken = take_memory(read.slab_offset_bytes + read.length_bytes);
      const bool can_wait = queue_->pending() > 0;
      if (!taken && taken.error().code() == Code::kExhausted && can_wait) break;
      if (!taken) {
        if (tag != nullptr) *tag = read.tag;
        waiting_.pop_front();
        status = std::move(taken).error();
        break;
      }
      slab = *std::move(taken);
    }
    queue(read, std::move(slab));
    waiting_.pop_front();
  }
  queue_->flush();
  return status;
}

void RangeFetcher::queue(const RangeRead& read, Slab slab) {
  std::size_t i = slots_.size();
  if (free_slots_.empty()) {
    slots_.emplace_back();
  } else {
    i = free_slots_.back();
    free_slots_.pop_back();
  }
  Slot& slot = slots_[i];
  slot.key.assign(read.key);
  slot.etag.assign(read.etag);
  slot.tag = read.tag;
  slot.slab_offset_bytes = read.slab_offset_bytes;
  slot.held_bytes = slab.bytes().empty() ? 0 : SlabPool::charged_bytes(slab.bytes().size());
  Request request;
  if (read.is_head) request.op = Op::kHead;
  request.key = slot.key;
  request.etag = slot.etag;
  request.version_id = options_.call.version_id;
  request.allow_short = read.allow_short;
  request.fresh_connection = read.is_fresh;
  request.offset_bytes = read.offset_bytes;
  request.length_bytes = read.length_bytes;
  request.slab_offset_bytes = read.slab_offset_bytes;
  request.slab = std::move(slab);
  request.deadline = options_.call.deadline;
  request.tag = i;
  queue_->push(std::move(request));
}

Result<RangeData> RangeFetcher::take_ready(std::uint64_t* tag) {
  Completion done = std::move(inbox_[inbox_taken_++]);
  free_slots_.push_back(done.tag);
  const Slot& slot = slots_[done.tag];
  held_bytes_ -= slot.held_bytes;
  budget_.give_back(slot.held_bytes);
  budget_.on_end(done);
  if (tag != nullptr) *tag = slot.tag;
  if (!done.status.ok()) return std::move(done.status);
  return RangeData{.tag = slot.tag,
                   .slab = std::move(done.slab),
                   .slab_offset_bytes = slot.slab_offset_bytes,
                   .length_bytes = done.length_bytes,
                   .object_size_bytes = done.object_size_bytes,
                   .etag = std::move(done.etag),
                   .object_checksum = done.object_checksum};
}

Result<RangeData> RangeFetcher::next(std::uint64_t* tag) {
  const CallOptions& call = options_.call;
  while (true) {
    if (call.stop.stop_requested()) return Status(Code::kCancelled, "reading: stopped");
    if (ready() > 0) return take_ready(tag);
    HEADRACE_TRY(submit_some(tag));
    const TimePoint until = options_.pause
                                ? std::min(call.deadline, system_clock().now() + kPauseSlice)
                                : call.deadline;
    inbox_taken_ = inbox_count_ = 0;
    budget_.on_wait();
    HEADRACE_TRY_ASSIGN(inbox_count_, queue_->wait(inbox_, until, call.stop));
    if (inbox_count_ > 0) continue;
    if (system_clock().now() >= call.deadline)
      return Status(Code::kDeadline, "reading: deadline passed");
    if (options_.pause) options_.pause();
  }
}

Result<std::vector<std::string>> fetch_all(RangeFetcher& fetcher, std::vector<RangeRead> reads) {
  std::vector<std::string> out(reads.size());
  for (std::size_t i = 0; i < reads.size(); ++i) {
    reads[i].tag = i;
    if (reads[i].length_bytes > 0) fetcher.start(reads[i]);
  }
  while (fetcher.pending() > 0) {
    HEADRACE_TRY_ASSIGN(const RangeData data, fetcher.next());
    const auto bytes = data.bytes();
    out[data.tag].assign(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }
  return out;
}

}  // namespace headrace
