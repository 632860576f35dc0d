#include "order/litdata/elastic.h"

#include <algorithm>

namespace headrace::litdata {
namespace {

std::size_t worker_of_batch(std::uint64_t batch, const LitDataWorld& world) noexcept {
  const std::uint64_t rank = batch % world.world_size;
  return static_cast<std::size_t>(rank * world.workers + batch / world.world_size % world.workers);
}

WorkerItems deal_chunks(std::span<const ChunkItem> left, const RestripeSpec& spec,
                        std::size_t workers) {
  std::vector<std::span<const ChunkItem>> visits;
  for (std::size_t at = 0; at < left.size();) {
    std::size_t end = at + 1;
    while (end < left.size() && left[end].chunk == left[at].chunk) ++end;
    visits.push_back(left.subspan(at, end - at));
    at = end;
  }
  if (spec.drop_last) visits.resize(visits.size() / workers * workers);
  WorkerItems out(workers);
  for (std::size_t i = 0; i < visits.size(); ++i) {
    out[i % workers].insert(out[i % workers].end(), visits[i].begin(), visits[i].end());
  }
  return out;
}

WorkerItems restripe_chunks(std::span<const ChunkItem> stream, const RestripeSpec& spec,
                            std::size_t workers) {
  const std::size_t drop = std::min<std::uint64_t>(spec.drop_first, stream.size());
  const auto left = stream.subspan(drop);
  if (drop == 0 || left.empty() || stream[drop - 1].chunk != left[0].chunk) {
    return deal_chunks(left, spec, workers);
  }
  std::vector<ChunkItem> kept;
  for (const ChunkItem& item : left) {
    if (item.chunk != left[0].chunk) kept.push_back(item);
  }
  return deal_chunks(kept, spec, workers);
}

}  // namespace

std::vector<ChunkItem> lockstep_stream(const WorkerItems& workers, const LitDataWorld& world) {
  std::size_t total = 0;
  for (const auto& items : workers) total += items.size();
  std::vector<ChunkItem> out;
  out.reserve(total);
  std::vector<std::size_t> next(workers.size());
  for (std::uint64_t batch = 0; out.size() < total; ++batch) {
    const std::size_t w = worker_of_batch(batch, world);
    const std::size_t end = std::min<std::size_t>(next[w] + world.batch_size, workers[w].size());
    for (; next[w] < end; ++next[w]) out.push_back(workers[w][next[w]]);
  }
  return out;
}

WorkerItems restripe(std::span<const ChunkItem> stream, const RestripeSpec& spec) {
  const LitDataWorld& world = spec.world;
  const std::size_t workers = std::size_t{world.world_size} * world.workers;
  if (spec.is_by_chunk) return restripe_chunks(stream, spec, workers);
  const std::uint64_t global_batch = std::uint64_t{world.world_size} * world.batch_size;
  const std::uint64_t drop = spec.drop_first / global_batch * global_batch;
  auto left = stream.subspan(std::min<std::uint64_t>(drop, stream.size()));
  if (spec.drop_last) {
    const std::uint64_t round = workers * std::uint64_t{world.batch_size};
    left = left.first(left.size() / round * round);
  }
  WorkerItems out(workers);
  for (std::size_t i = 0; i < left.size(); ++i) {
    out[worker_of_batch(i / world.batch_size, world)].push_back(left[i]);
  }
  return out;
}

std::vector<std::uint64_t> replay_sampling(std::uint64_t samples, const LitDataWorld& world) {
  const std::uint64_t round = std::uint64_t{world.workers} * world.batch_size;
  std::vector<std::uint64_t> out(world.workers, samples / round * world.batch_size);
  samples %= round;
  for (std::size_t w = 0; samples != 0; ++w) {
    const std::uint64_t taken = std::min<std::uint64_t>(samples, world.batch_size);
    out[w] += taken;
    samples -= taken;
  }
  return out;
}

}  // namespace headrace::litdata
