// What is read is asked of the order, epoch by epoch: from the batch that the run begins with, and
// once more for the next epoch, unless none follows. Batches of the next epoch are counted on from
// the last one of this, so that both are on one line. Reads of different epochs cut a block in
// different places: told are the parts between all cuts, each with all of its reads.
#include "feed/forecast.h"

#include <algorithm>

#include "base/start_thread.h"

namespace headrace::feed {
namespace {

std::uint32_t as_told(std::uint64_t batch) {
  return static_cast<std::uint32_t>(std::min<std::uint64_t>(batch, ForeseenRead::kNever - 1));
}

std::uint64_t size_of(std::span<const Extent> extents) {
  std::uint64_t bytes = 0;
  for (const Extent& extent : extents) bytes += extent.length_bytes;
  return bytes;
}

}  // namespace

Forecast::~Forecast() {
  stop_.request_stop();
  std::thread thread;
  {
    MutexLock lock(mutex_);
    is_ending_ = true;
    thread.swap(thread_);
  }
  changed_.notify_all();
  if (thread.joinable()) thread.join();
}

void Forecast::begin(Epoch epoch) {
  if (!is_wanted_ || epoch.order == nullptr) return;
  epoch.since = store_.read_count();
  MutexLock lock(mutex_);
  next_ = std::move(epoch);
  // Without a thread the cache does as if nothing were foreseen.
  if (!thread_.joinable() && !is_ending_) start_thread(thread_, [this] { run(stop_.get_token()); });
  changed_.notify_all();
}

void Forecast::run(const std::stop_token& stop) {
  while (true) {
    Epoch epoch;
    {
      MutexLock lock(mutex_);
      while (!next_ && !is_ending_) lock.wait(changed_);
      if (is_ending_) return;
      epoch = std::move(*next_);
      next_.reset();
    }
    tell(epoch, stop);
  }
}

std::vector<BlockRead> Forecast::find_reads(const Epoch& epoch, const std::stop_token& stop) const {
  const NeedIndex::Ranks own{.first = epoch.plan.rank, .count = 1};
  std::vector<BlockRead> reads = find_block_reads(epoch.order, *dataset_, epoch.plan, own);
  const OrderQuery query{.epoch = epoch.order->epoch() + 1,
                         .t = 0,
                         .global_batch = epoch.plan.segment.global_batch,
                         .world_size = epoch.plan.world_size};
  if (!epoch.is_last) {
    const auto answer = epoch.source->plan(query, stop);
    if (answer && (*answer).order != nullptr) {
      BatchPlan plan = epoch.plan;
      plan.segment.start = (*answer).start;
      plan.sample_count = (*answer).order->sample_count();
      for (BlockRead read : find_block_reads((*answer).order, *dataset_, plan, own)) {
        read.batch += epoch.plan.batch_count();
        reads.push_back(read);
      }
    }
  }
  std::sort(reads.begin(), reads.end(),
            [](const BlockRead& a, const BlockRead& b) { return a.block < b.block; });
  return reads;
}

void Forecast::tell(const Epoch& epoch, const std::stop_token& stop) {
  const std::vector<BlockRead> reads = find_reads(epoch, stop);
  if (stop.stop_requested()) return;
  Told told;
  for (auto at = reads.begin(); at != reads.end();) {
    const auto end = std::find_if(at, reads.end(),
                                  [&](const BlockRead& read) { return read.block != at->block; });
    const std::vector<BlockPart> parts = find_parts({at, end});
    tell_parts(at->block, parts, told);
    tell_values(at->block, parts, epoch.plan.batch_count(), told);
    at = end;
  }
  store_.foresee(told.reads, epoch.since);
}

void Forecast::tell_parts(std::uint32_t block, std::span<const BlockPart> parts, Told& told) const {
  std::vector<Extent> whole, cut;
  std::vector<std::size_t> ends;
  dataset_->append_extents(block, parts.front().begin, parts.back().end, whole);
  for (const BlockPart& part : parts) {
    dataset_->append_extents(block, part.begin, part.end, cut);
    ends.push_back(cut.size());
  }
  // Each read fetches all of it, whatever it is of (a compressed block).
  if (size_of(cut) != size_of(whole)) {
    std::vector<std::uint64_t> needs;
    for (const BlockPart& part : parts)
      needs.insert(needs.end(), part.needs.begin(), part.needs.end());
    std::sort(needs.begin(), needs.end());
    needs.erase(std::unique(needs.begin(), needs.end()), needs.end());
    return tell_needs(whole, needs, told);
  }
  std::size_t begin = 0;
  for (std::size_t i = 0; i < parts.size(); begin = ends[i++])
    tell_needs(std::span(cut).subspan(begin, ends[i] - begin), parts[i].needs, told);
}

void Forecast::tell_needs(std::span<const Extent> extents, std::span<const std::uint64_t> needs,
                          Told& told) {
  for (const Extent& extent : extents) {
    for (std::size_t i = 0; i < needs.size(); i += 2)
      told.reads.push_back(
          {.key = extent.key,
           .etag = extent.etag,
           .offset_bytes = extent.offset_bytes,
           .length_bytes = extent.length_bytes,
           .first = as_told(needs[i]),
           .second = i + 1 < needs.size() ? as_told(needs[i + 1]) : ForeseenRead::kNever});
  }
}

// They are read all over the time in which the block is in use, so that no single read says that
// they are not needed any more: what counts is the next epoch.
void Forecast::tell_values(std::uint32_t block, std::span<const BlockPart> parts,
                           std::uint64_t batch_count, Told& told) const {
  const std::size_t before = told.values.size();
  values_->append_kept(block, told.values);
  if (told.values.size() == before) return;
  std::uint64_t now = kNever, later = kNever;
  for (const BlockPart& part : parts) {
    for (const std::uint64_t need : part.needs) {
      std::uint64_t& soonest = need < batch_count ? now : later;
      soonest = std::min(soonest, need);
    }
  }
  for (std::size_t i = before; i < told.values.size(); ++i) {
    told.reads.push_back({.key = told.values[i].key,
                          .etag = told.values[i].version,
                          .offset_bytes = 0,
                          .length_bytes = told.values[i].length_bytes,
                          .first = ForeseenRead::kNever,
                          .second = as_told(later != kNever ? later : now)});
  }
}

}  // namespace headrace::feed
