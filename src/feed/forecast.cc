// When a block is needed is asked of the order, epoch by epoch (NeedIndex): from the batch that the
// run begins with, and once more for the next epoch, unless none follows. Batches of the next epoch
// are counted on from the last one of this, so that both are on one line.
#include "feed/forecast.h"

#include <algorithm>
#include <deque>

#include "base/start_thread.h"
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

std::optional<Forecast::Needs> Forecast::find_needs(const Epoch& epoch,
                                                    const std::stop_token& stop) const {
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
  if (stop.stop_requested()) return std::nullopt;
  Needs needs;
  for (std::uint32_t block = 0; block < block_count; ++block) {
    needs.now.push_back(told(now[block], 0));
    needs.later.push_back(told(later[block], epoch.plan.batch_count()));
  }
  return needs;
}

void Forecast::tell(const Epoch& epoch, const std::stop_token& stop) {
  const auto needs = find_needs(epoch, stop);
  if (!needs) return;
  std::vector<ForeseenRead> reads;
  std::vector<Extent> extents;
  std::deque<DecodedValues::Kept> kept;  // What `reads` looks into.
  for (std::uint32_t block = 0; block < dataset_->block_count(); ++block) {
    const std::uint32_t now = needs->now[block], later = needs->later[block];
    if (now == ForeseenRead::kNever && later == ForeseenRead::kNever) continue;
    extents.clear();
    dataset_->append_extents(block, 0, dataset_->block(block).sample_count, extents);
    for (const Extent& extent : extents) {
      reads.push_back({.key = extent.key,
                       .etag = extent.etag,
                       .offset_bytes = extent.offset_bytes,
                       .length_bytes = extent.length_bytes,
                       .first = now,
                       .second = later});
    }
    const std::size_t before = kept.size();
    values_->append_kept(block, kept);
    // They are read all over the time in which the block is in use, so that no single read says
    // that they are not needed any more: what counts is the next epoch.
    for (std::size_t i = before; i < kept.size(); ++i) {
      reads.push_back({.key = kept[i].key,
                       .etag = kept[i].version,
                       .offset_bytes = 0,
                       .length_bytes = kept[i].length_bytes,
                       .first = ForeseenRead::kNever,
                       .second = later != ForeseenRead::kNever ? later : now});
    }
  }
  store_.foresee(reads, epoch.since);
}

}  // namespace headrace::feed
