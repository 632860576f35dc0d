// SampleLists of LitData: what every worker serves, laid out in slots.
#include <algorithm>
#include <limits>

#include "headrace/litdata_order.h"
#include "order/litdata/association.h"
#include "order/litdata/elastic.h"

namespace headrace {
namespace litdata {
namespace {

Status invalid(const std::string& why) { return Status(Code::kInvalidArgument, why); }

// More processes than any machine has; keeps products of counts below 2^63.
constexpr std::uint64_t kMostWorkers = 1 << 24;

Status check(const LitDataSpec& spec, std::span<const LitDataChunk> chunks,
             const LitDataWorld& world) {
  if (spec.shuffle != "none" && spec.shuffle != "full" && spec.shuffle != "window") {
    return invalid("shuffle=" + spec.shuffle + ": expected none, full or window");
  }
  if (world.world_size == 0 || world.nodes == 0 || world.workers == 0 || world.batch_size == 0) {
    return invalid("ranks, nodes, workers and batch size are all at least 1");
  }
  if (std::uint64_t{world.world_size} * world.workers > kMostWorkers) {
    return invalid("more than 2^24 workers");
  }
  if (world.world_size % world.nodes != 0) {
    return invalid(std::to_string(world.world_size) + " ranks are not a multiple of " +
                   std::to_string(world.nodes) + " nodes");
  }
  if (chunks.size() > std::numeric_limits<std::uint32_t>::max()) return invalid("too many chunks");
  std::uint64_t next = 0;
  for (const LitDataChunk& chunk : chunks) {
    if (chunk.begin != next || chunk.roi_begin < chunk.begin || chunk.roi_end < chunk.roi_begin ||
        chunk.end < chunk.roi_end) {
      return invalid("chunks do not follow one another at item " + std::to_string(next));
    }
    next = chunk.end;
  }
  return Status();
}

/// What one worker serves.
template <class T>
using Sequences = std::vector<std::vector<T>>;

/// A batch: items [first, first + count) of all items, or nothing.
struct BatchPlace {
  std::uint64_t first = 0;
  std::uint32_t count = 0;
};

template <class T>
class LitDataList final : public SampleList {
 public:
  /// `first_worker`: of each rank, whose batch comes first.
  LitDataList(Sequences<T> workers, const LitDataWorld& world, std::uint32_t first_worker)
      : world_(world) {
    std::vector<std::uint64_t> start;
    for (auto& items : workers) {
      start.push_back(items_.size());
      items_.insert(items_.end(), items.begin(), items.end());
      items = std::vector<T>();  // Gives it back; "= {}" would keep it.
    }
    start.push_back(items_.size());
    for (std::uint32_t rank = 0; rank < world.world_size; ++rank) {
      batches_.push_back(rank_batches(start, rank, first_worker));
      batch_count_ = std::max<std::uint64_t>(batch_count_, batches_.back().size());
    }
  }

  std::uint64_t size() const noexcept override { return batch_count_ * global_batch(); }
  void read(std::uint64_t t, std::span<std::int64_t> out) const override {
    for (std::int64_t& id : out) id = at(t++);
  }

 private:
  std::uint64_t global_batch() const noexcept {
    return std::uint64_t{world_.world_size} * world_.batch_size;
  }
  /// Round robin over the workers that have batches left.
  /// `start`: of each worker's items, and their end.
  std::vector<BatchPlace> rank_batches(std::span<const std::uint64_t> start, std::uint32_t rank,
                                       std::uint32_t first_worker) const {
    const std::size_t base = std::size_t{rank} * world_.workers;
    std::vector<std::uint64_t> next(world_.workers);
    std::uint64_t left = start[base + world_.workers] - start[base];
    std::vector<BatchPlace> out;
    for (std::uint32_t w = first_worker % world_.workers; left != 0; w = (w + 1) % world_.workers) {
      const std::uint64_t count = std::min<std::uint64_t>(
          world_.batch_size, start[base + w + 1] - start[base + w] - next[w]);
      if (count == 0) continue;
      out.push_back({start[base + w] + next[w], static_cast<std::uint32_t>(count)});
      next[w] += count;
      left -= count;
    }
    return out;
  }
  std::int64_t at(std::uint64_t t) const noexcept {
    const std::uint64_t k = t / global_batch();
    const std::uint64_t rest = t % global_batch();
    const auto& batches = batches_[rest / world_.batch_size];
    const std::uint64_t j = rest % world_.batch_size;
    if (k >= batches.size() || j >= batches[k].count) return -1;
    return static_cast<std::int64_t>(items_[batches[k].first + j]);
  }

  LitDataWorld world_;
  std::vector<T> items_;                          // worker after worker
  std::vector<std::vector<BatchPlace>> batches_;  // a rank
  std::uint64_t batch_count_ = 0;
};

template <class T>
Sequences<T> serve(const LitDataSpec& spec, std::span<const LitDataChunk> chunks,
                   const Visits& visits, std::uint32_t epoch) {
  Sequences<T> out(visits.size());
  std::vector<std::uint64_t> items;
  for (std::size_t w = 0; w < visits.size(); ++w) {
    for (const Visit& visit : visits[w]) {
      items.clear();
      append_items(spec, visit, static_cast<std::uint32_t>(chunks.size()), epoch, items);
      for (const std::uint64_t item : items) out[w].push_back(static_cast<T>(item));
    }
  }
  return out;
}

template <class T>
std::shared_ptr<const SampleList> make_list(Sequences<T> workers, const LitDataWorld& world,
                                            std::uint32_t first_worker) {
  return std::make_shared<LitDataList<T>>(std::move(workers), world, first_worker);
}

template <class T>
void drop_served(Sequences<T>& workers, const LitDataWorld& world,
                 std::span<const std::uint64_t> served) {
  for (std::size_t w = 0; w < workers.size(); ++w) {
    const std::uint64_t skip =
        std::min<std::uint64_t>(served[w % world.workers], workers[w].size());
    workers[w].erase(workers[w].begin(), workers[w].begin() + static_cast<std::ptrdiff_t>(skip));
  }
}

/// Worker whose turn it is after a rank has yielded `samples`.
std::uint32_t next_worker(std::uint64_t samples, const LitDataWorld& world) {
  return static_cast<std::uint32_t>(samples / world.batch_size % world.workers);
}

WorkerItems with_chunks(const LitDataSpec& spec, std::span<const LitDataChunk> chunks,
                        const LitDataWorld& world, std::uint32_t epoch) {
  const Visits visits = associate(spec, chunks, world, epoch);
  WorkerItems out(visits.size());
  std::vector<std::uint64_t> items;
  for (std::size_t w = 0; w < visits.size(); ++w) {
    for (const Visit& visit : visits[w]) {
      items.clear();
      append_items(spec, visit, static_cast<std::uint32_t>(chunks.size()), epoch, items);
      for (const std::uint64_t item : items) out[w].push_back({item, visit.chunk});
    }
  }
  return out;
}

/// The epoch as the first world served it, what it served dropped, the rest dealt out anew.
template <class T>
std::shared_ptr<const SampleList> resume_elastic(const LitDataSpec& spec,
                                                 std::span<const LitDataChunk> chunks,
                                                 const LitDataWorld& world,
                                                 const LitDataState& state, bool is_same_world) {
  const WorkerItems first = with_chunks(spec, chunks, state.initial, state.epoch);
  RestripeSpec stripes;
  stripes.world = world;
  stripes.drop_last = spec.drop_last;
  stripes.is_by_chunk = spec.shuffle == "window";
  stripes.drop_first = state.sample_in_epoch;
  if (is_same_world) {
    // The workers' plans of the last deal, which then skip what they served since.
    const std::uint64_t since = state.num_samples_yielded * world.world_size;
    stripes.drop_first -= std::min(stripes.drop_first, since);
  }
  const WorkerItems dealt = restripe(lockstep_stream(first, state.initial), stripes);
  Sequences<T> workers(dealt.size());
  for (std::size_t w = 0; w < dealt.size(); ++w) {
    for (const ChunkItem& item : dealt[w]) workers[w].push_back(static_cast<T>(item.item));
  }
  if (is_same_world) drop_served(workers, world, replay_sampling(state.num_samples_yielded, world));
  return make_list(std::move(workers), world, 0);
}

// Four bytes an item where they are enough: the list of an epoch holds all items.
bool needs_wide_items(std::span<const LitDataChunk> chunks) {
  return !chunks.empty() && chunks.back().end > std::numeric_limits<std::uint32_t>::max();
}

template <class T>
std::shared_ptr<const SampleList> resume_in_place(const LitDataSpec& spec,
                                                  std::span<const LitDataChunk> chunks,
                                                  const LitDataWorld& world, std::uint32_t epoch,
                                                  std::uint64_t yielded) {
  auto workers = serve<T>(spec, chunks, associate(spec, chunks, world, epoch), epoch);
  drop_served(workers, world, replay_sampling(yielded, world));
  return make_list(std::move(workers), world, next_worker(yielded, world));
}

}  // namespace
}  // namespace litdata

Result<std::shared_ptr<const SampleList>> make_litdata_list(const LitDataSpec& spec,
                                                            std::span<const LitDataChunk> chunks,
                                                            const LitDataWorld& world,
                                                            std::uint32_t epoch) {
  LitDataState start;
  start.epoch = epoch;
  start.saved_by = world;
  start.initial = world;
  return resume_litdata_list(spec, chunks, world, start);
}

Result<std::shared_ptr<const SampleList>> resume_litdata_list(const LitDataSpec& spec,
                                                              std::span<const LitDataChunk> chunks,
                                                              const LitDataWorld& world,
                                                              const LitDataState& state) {
  HEADRACE_TRY(litdata::check(spec, chunks, world));
  HEADRACE_TRY(litdata::check(spec, chunks, state.saved_by));
  HEADRACE_TRY(litdata::check(spec, chunks, state.initial));
  if (state.num_samples_yielded > std::uint64_t{1} << 48) {
    return litdata::invalid("num_samples_yielded is at most 2^48");
  }
  const LitDataWorld& saved = state.saved_by;
  const bool is_same_world = saved.world_size == world.world_size &&
                             saved.workers == world.workers && saved.batch_size == world.batch_size;
  const bool is_wide = litdata::needs_wide_items(chunks);
  if (is_same_world && !state.is_elastic) {
    return is_wide ? litdata::resume_in_place<std::uint64_t>(spec, chunks, world, state.epoch,
                                                             state.num_samples_yielded)
                   : litdata::resume_in_place<std::uint32_t>(spec, chunks, world, state.epoch,
                                                             state.num_samples_yielded);
  }
  return is_wide
             ? litdata::resume_elastic<std::uint64_t>(spec, chunks, world, state, is_same_world)
             : litdata::resume_elastic<std::uint32_t>(spec, chunks, world, state, is_same_world);
}

}  // namespace headrace
