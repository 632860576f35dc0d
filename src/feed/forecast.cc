// When a block is needed is asked of the order, epoch by epoch (NeedIndex): from the batch that the
// run begins with, and once more for the next epoch, unless none follows. Batches of the next epoch
// are counted on from the last one of this, so that both are on one line.
#include "feed/forecast.h"

#include <algorithm>

#include "feed/block_needs.h"

namespace headrace::feed {
namespace {

std::uint32_t told(std::uint64_t need, std::uint64_t later) {
  if (need == kNever) return ForeseenRead::kNever;
  return static_cast<std::uint32_t>(
      std::min<std::uint64_t>(need + later, ForeseenRead::kNever - 1));
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
  if (!thread_.joinable() && !is_ending_) thread_ = std::thread([this] { run(stop_.get_token()); });
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

void Forecast::tell(const Epoch& epoch, const std::stop_token& stop) {
  const std::uint32_t block_count = dataset_->block_count();
  const NeedIndex::Ranks own{.first = epoch.plan.rank, .count = 1};
  const std::vector<std::uint64_t> now = first_needs(epoch.order, block_count, epoch.plan, own);
  std::vector<std::uint64_t> later(block_count, kNever);
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
      later = first_needs((*answer).order, block_count, plan, own);
    }
  }
  if (stop.stop_requested()) return;
  const std::uint64_t batches = epoch.plan.batch_count();
  std::vector<ForeseenRead> reads;
  std::vector<Extent> extents;
  std::vector<std::uint32_t> blocks;
  for (std::uint32_t block = 0; block < block_count; ++block) {
    if (now[block] == kNever && later[block] == kNever) continue;
    dataset_->append_extents(block, 0, dataset_->block(block).sample_count, extents);
    blocks.resize(extents.size(), block);
  }
  for (std::size_t i = 0; i < extents.size(); ++i) {
    const Extent& extent = extents[i];
    reads.push_back({.key = extent.key,
                     .etag = extent.etag,
                     .offset_bytes = extent.offset_bytes,
                     .length_bytes = extent.length_bytes,
                     .first = told(now[blocks[i]], 0),
                     .second = told(later[blocks[i]], batches)});
  }
  store_.foresee(reads, epoch.since);
}

}  // namespace headrace::feed
