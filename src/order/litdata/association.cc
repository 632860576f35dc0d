// Follows LitData's code draw by draw and rounding by rounding, also where another way would be
// simpler: each shuffle begins with a generator of its own seeds, and an order that differed in
// one sample would be no continuation of a run that LitData began.
#include "order/litdata/association.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "order/numpy_random/mt19937.h"

namespace headrace::litdata {
namespace {

using numpy_random::Mt19937;

Mt19937 state_of(std::initializer_list<std::uint32_t> seeds) {
  return Mt19937(std::span(seeds.begin(), seeds.size()));
}

Visit whole(std::span<const LitDataChunk> chunks, std::uint32_t chunk) {
  return {chunk, chunks[chunk].roi_begin, chunks[chunk].roi_end};
}

std::vector<Visit> visits_of(std::span<const LitDataChunk> chunks,
                             std::span<const std::uint32_t> order) {
  std::vector<Visit> out;
  out.reserve(order.size());
  for (const std::uint32_t chunk : order) out.push_back(whole(chunks, chunk));
  return out;
}

std::vector<std::uint32_t> in_sequence(std::size_t count) {
  std::vector<std::uint32_t> out(count);
  std::iota(out.begin(), out.end(), 0U);
  return out;
}

/// Items of each worker: whole batches shared out evenly over ranks, then workers; what is left
/// over goes to a worker of the last rank.
std::vector<std::uint64_t> worker_items(std::uint64_t items, const LitDataWorld& world,
                                        bool drop_last) {
  const std::uint64_t batches_a_rank = items / world.batch_size / world.world_size;
  std::vector<std::uint64_t> out;
  for (std::uint32_t rank = 0; rank < world.world_size; ++rank) {
    for (std::uint32_t w = 0; w < world.workers; ++w) {
      const std::uint64_t more = w < batches_a_rank % world.workers ? 1 : 0;
      out.push_back((batches_a_rank / world.workers + more) * world.batch_size);
    }
  }
  if (!drop_last) {
    const std::uint64_t given = batches_a_rank * world.world_size * world.batch_size;
    const std::size_t last_rank = std::size_t{world.world_size - 1} * world.workers;
    out[last_rank + batches_a_rank % world.workers] += items - given;
  }
  return out;
}

/// Pours chunks into workers one after another, cutting them where a worker is full.
Visits pour(std::vector<Visit> chunks, const LitDataWorld& world, bool drop_last) {
  std::uint64_t items = 0;
  for (const Visit& chunk : chunks) items += chunk.size();
  std::vector<std::uint64_t> room = worker_items(items, world, drop_last);
  Visits out(room.size());
  std::size_t worker = 0;
  for (Visit chunk : chunks) {
    while (worker < room.size() && chunk.size() != 0) {
      if (room[worker] == 0) {
        ++worker;
        continue;
      }
      const std::uint64_t taken = std::min(room[worker], chunk.size());
      out[worker].push_back({chunk.chunk, chunk.begin, chunk.begin + taken});
      chunk.begin += taken;
      room[worker] -= taken;
    }
  }
  return out;
}

/// Whole chunks in contiguous stripes.
Visits stripe(std::span<const LitDataChunk> chunks, const LitDataWorld& world) {
  const std::uint64_t workers = std::uint64_t{world.world_size} * world.workers;
  Visits out(workers);
  std::uint64_t total = 0;
  for (const LitDataChunk& chunk : chunks) total += chunk.roi_end - chunk.roi_begin;
  std::uint64_t prefix = 0;
  std::uint64_t worker = 0;
  for (std::uint32_t c = 0; c < chunks.size(); ++c) {
    const Visit visit = whole(chunks, c);
    // In doubles, as LitData decides it.
    const double middle = static_cast<double>(prefix) + static_cast<double>(visit.size()) / 2.0;
    while (worker + 1 < workers && !out[worker].empty() &&
           middle > static_cast<double>((worker + 1) * total) / static_cast<double>(workers)) {
      ++worker;
    }
    out[worker].push_back(visit);
    prefix += visit.size();
  }
  return out;
}

std::uint64_t item_count(std::span<const Visit> visits) {
  std::uint64_t items = 0;
  for (const Visit& visit : visits) items += visit.size();
  return items;
}

/// Cuts every worker to the items of the one that has fewest (of those that have any).
void trim_to_shortest(Visits& workers, std::uint64_t batch_size) {
  std::uint64_t cap = 0;
  for (const auto& visits : workers) {
    const std::uint64_t items = item_count(visits);
    if (items != 0 && (cap == 0 || items < cap)) cap = items;
  }
  if (cap == 0) return;
  cap = cap / batch_size * batch_size;
  for (auto& visits : workers) {
    std::vector<Visit> kept;
    std::uint64_t left = cap;
    for (const Visit& visit : visits) {
      const std::uint64_t taken = std::min(left, visit.size());
      if (taken != 0) kept.push_back({visit.chunk, visit.begin, visit.begin + taken});
      left -= taken;
    }
    visits = std::move(kept);
  }
}

/// Fisher-Yates whose partner of i comes from [i, i + window).
template <class T>
void window_shuffle(std::vector<T>& items, std::uint32_t window, Mt19937& rng) {
  if (items.size() < 2 || window <= 1) return;
  for (std::size_t i = 0; i + 1 < items.size(); ++i) {
    const std::size_t high = std::min(i + window, items.size());
    std::swap(items[i], items[static_cast<std::size_t>(rng.randint(
                            static_cast<std::int64_t>(i), static_cast<std::int64_t>(high)))]);
  }
}

Visits associate_window(const LitDataSpec& spec, std::span<const LitDataChunk> chunks,
                        const LitDataWorld& world, std::uint32_t epoch) {
  Visits workers = stripe(chunks, world);
  if (spec.drop_last) trim_to_shortest(workers, world.batch_size);
  for (std::uint32_t w = 0; w < workers.size(); ++w) {
    Mt19937 rng = state_of({spec.seed, epoch, w});
    window_shuffle(workers[w], spec.window, rng);
  }
  return workers;
}

Visits associate_globally(const LitDataSpec& spec, std::span<const LitDataChunk> chunks,
                          const LitDataWorld& world, std::uint32_t seed_shift) {
  const auto order = state_of({spec.seed, seed_shift}).permutation<std::uint32_t>(chunks.size());
  return pour(visits_of(chunks, order), world, spec.drop_last);
}

/// Chunks of each node, each once, in the order its workers read them.
std::vector<std::vector<std::uint32_t>> chunks_per_node(const Visits& workers,
                                                        const LitDataWorld& world,
                                                        std::size_t chunk_count) {
  std::vector<std::vector<std::uint32_t>> nodes(world.nodes);
  const std::size_t workers_a_node = workers.size() / world.nodes;
  std::vector<std::uint32_t> seen(chunk_count, 0);  // node + 1 that listed the chunk last
  for (std::size_t w = 0; w < workers.size(); ++w) {
    const auto node = static_cast<std::uint32_t>(w / workers_a_node);
    for (const Visit& visit : workers[w]) {
      if (seen[visit.chunk] == node + 1) continue;
      seen[visit.chunk] = node + 1;
      nodes[node].push_back(visit.chunk);
    }
  }
  return nodes;
}

bool fits(std::uint64_t bytes, std::uint64_t limit) { return limit == 0 || bytes <= limit; }

/// Several nodes: the chunks of a node stay on it from epoch to epoch when they fit its cache.
Visits associate_full(const LitDataSpec& spec, std::span<const LitDataChunk> chunks,
                      const LitDataWorld& world, std::uint32_t epoch) {
  if (world.nodes == 1) return associate_globally(spec, chunks, world, epoch);
  Visits first = associate_globally(spec, chunks, world, 1);
  if (epoch == 1) return first;
  auto nodes = chunks_per_node(first, world, chunks.size());
  std::uint64_t most = 0;
  for (const auto& node : nodes) {
    std::uint64_t bytes = 0;
    for (const std::uint32_t chunk : node) bytes += chunks[chunk].bytes;
    most = std::max(most, bytes);
  }
  if (!fits(most, spec.max_cache_size)) return associate_globally(spec, chunks, world, epoch);
  Visits out;
  LitDataWorld local = world;
  local.world_size = world.world_size / world.nodes;
  local.nodes = 1;
  for (std::uint32_t n = 0; n < nodes.size(); ++n) {
    state_of({spec.seed, epoch, n}).shuffle(std::span(nodes[n]));
    for (auto& visits : pour(visits_of(chunks, nodes[n]), local, spec.drop_last)) {
      out.push_back(std::move(visits));
    }
  }
  return out;
}

/// Aligned blocks of `window` items, shuffled inside, then among each other.
void block_shuffle(std::vector<std::uint64_t>& items, std::uint32_t window, Mt19937& rng) {
  if (items.size() < 2) return;
  if (window <= 1) {
    rng.shuffle(std::span(items));
    return;
  }
  std::vector<std::span<std::uint64_t>> blocks;
  for (std::size_t at = 0; at < items.size(); at += window) {
    blocks.push_back(
        std::span(items).subspan(at, std::min<std::size_t>(window, items.size() - at)));
    rng.shuffle(blocks.back());
  }
  if (blocks.size() == 1) return;
  rng.shuffle(std::span(blocks));
  std::vector<std::uint64_t> out;
  out.reserve(items.size());
  for (const auto& block : blocks) out.insert(out.end(), block.begin(), block.end());
  items = std::move(out);
}

}  // namespace

Visits associate(const LitDataSpec& spec, std::span<const LitDataChunk> chunks,
                 const LitDataWorld& world, std::uint32_t epoch) {
  if (spec.shuffle == "window") return associate_window(spec, chunks, world, epoch);
  if (spec.shuffle == "full") return associate_full(spec, chunks, world, epoch);
  return pour(visits_of(chunks, in_sequence(chunks.size())), world, spec.drop_last);
}

void append_items(const LitDataSpec& spec, const Visit& visit, std::uint32_t chunk_count,
                  std::uint32_t epoch, std::vector<std::uint64_t>& out) {
  std::vector<std::uint64_t> items(visit.size());
  std::iota(items.begin(), items.end(), visit.begin);
  if (spec.shuffle != "none") {
    Mt19937 rng = state_of({spec.seed, chunk_count, epoch, visit.chunk});
    if (spec.shuffle == "window" && !spec.item_shuffle_window) {
      window_shuffle(items, spec.window, rng);
    } else {
      block_shuffle(items, spec.item_shuffle_window.value_or(0), rng);
    }
  }
  out.insert(out.end(), items.begin(), items.end());
}

}  // namespace headrace::litdata
