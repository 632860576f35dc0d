#include "shard/range_fetcher.h"

#include <numeric>

namespace headrace::detail {

Result<std::unique_ptr<RangeFetcher>> RangeFetcher::create(Store& store, SlabPool& pool,
                                                           const CallOptions& call) {
  HEADRACE_TRY_ASSIGN(auto handle, store.new_handle());
  return std::unique_ptr<RangeFetcher>(new RangeFetcher(std::move(handle), pool, call));
}

std::vector<std::size_t> RangeFetcher::all_slots() {
  std::vector<std::size_t> slots(kMostInFlight);
  std::iota(slots.begin(), slots.end(), std::size_t{0});
  return slots;
}

Status RangeFetcher::submit_some() {
  while (!waiting_.empty() && !free_slots_.empty()) {
    const RangeRead& read = waiting_.front();
    auto slab = pool_.try_acquire(read.length_bytes);
    if (!slab) {
      if (slab.error().code() != Code::kExhausted) return std::move(slab).error();
      if (in_flight() > 0) return Status();
      // Somebody else holds the memory.
      slab = pool_.acquire(read.length_bytes, call_.deadline);
      if (!slab) return std::move(slab).error();
    }
    const std::size_t i = free_slots_.back();
    Slot& slot = slots_[i];
    slot = {.key = std::string(read.key), .etag = std::string(read.etag), .tag = read.tag};
    Request request;
    request.key = slot.key;
    request.etag = slot.etag;
    request.allow_short = read.allow_short;
    request.fresh_connection = read.is_fresh;
    request.offset_bytes = read.offset_bytes;
    request.length_bytes = read.length_bytes;
    request.slab = *std::move(slab);
    request.deadline = call_.deadline;
    request.tag = i;
    if (handle_->submit(std::span(&request, 1)) == 0) return Status();
    free_slots_.pop_back();
    waiting_.pop_front();
  }
  return Status();
}

Result<RangeData> RangeFetcher::next() {
  while (true) {
    if (call_.stop.stop_requested()) return Status(Code::kCancelled, "reading: stopped");
    HEADRACE_TRY(submit_some());
    Completion done;
    if (handle_->wait(std::span(&done, 1), call_.deadline, call_.stop) == 0) {
      if (system_clock().now() >= call_.deadline) {
        return Status(Code::kDeadline, "reading: deadline passed");
      }
      continue;
    }
    free_slots_.push_back(done.tag);
    if (!done.status.ok()) return std::move(done.status);
    return RangeData{.tag = slots_[done.tag].tag,
                     .slab = std::move(done.slab),
                     .length_bytes = done.length_bytes,
                     .object_size_bytes = done.object_size_bytes,
                     .etag = std::move(done.etag)};
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

}  // namespace headrace::detail
