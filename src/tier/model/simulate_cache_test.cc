#include "headrace/simulate_cache.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <numeric>
#include <set>
#include <vector>

#include "base/random.h"
#include "base/test_seed.h"

namespace headrace {
namespace {

constexpr std::uint64_t kBytes = 1 << 20;
constexpr std::uint64_t kFileBytes = kBytes + 4096;

/// `epochs` passes over `extents` in random order by one rank, an extent a batch, each forecast as
/// a loader does it: the rest of its epoch and the next.
ReadTrace shuffled(std::uint32_t extents, std::uint32_t epochs, std::uint64_t seed) {
  Random random(seed);
  std::vector<std::vector<std::uint32_t>> order(epochs + 1, std::vector<std::uint32_t>(extents));
  for (auto& epoch : order) {
    std::iota(epoch.begin(), epoch.end(), 0U);
    for (std::size_t i = extents; i > 1; --i) std::swap(epoch[i - 1], epoch[random.next() % i]);
  }
  ReadTrace trace;
  trace.ranks.emplace_back();
  ReadTrace::Rank& rank = trace.ranks[0];
  for (std::uint32_t e = 0; e < epochs; ++e) {
    ReadTrace::Plan plan{.since = rank.reads.size(), .reads = {}};
    std::vector<std::uint32_t> first(extents), second(extents, ReadTrace::kNever);
    for (std::uint32_t i = 0; i < extents; ++i) {
      first[order[e][i]] = i;
      if (e + 1 < epochs) second[order[e + 1][i]] = extents + i;
    }
    for (std::uint32_t x = 0; x < extents; ++x) {
      plan.reads.push_back(
          {.object = x, .length_bytes = kBytes, .first = first[x], .second = second[x]});
    }
    rank.plans.push_back(std::move(plan));
    for (const std::uint32_t x : order[e]) {
      rank.reads.push_back({.object = x, .length_bytes = kBytes, .need = rank.reads_before.size()});
      rank.reads_before.push_back(rank.reads.size());
    }
    rank.epoch_batches.push_back(extents);
  }
  trace.data_bytes = extents * kBytes;
  trace.file_bytes = extents * kFileBytes;
  return trace;
}

/// Bytes that Belady's rule fetches with room for so many extents, which knows everything.
std::uint64_t optimum(const ReadTrace& trace, std::size_t room) {
  const auto& reads = trace.ranks[0].reads;
  std::vector<std::size_t> next(reads.size(), reads.size());
  std::vector<std::size_t> last(reads.size(), reads.size());
  for (std::size_t i = reads.size(); i-- > 0;) {
    next[i] = last[reads[i].object];
    last[reads[i].object] = i;
  }
  std::vector<std::pair<std::size_t, std::uint32_t>> held;  // (next use, object)
  std::uint64_t fetched = 0;
  for (std::size_t i = 0; i < reads.size(); ++i) {
    const auto found = std::find_if(held.begin(), held.end(),
                                    [&](const auto& h) { return h.second == reads[i].object; });
    if (found != held.end()) {
      found->first = next[i];
      continue;
    }
    fetched += kBytes;
    held.emplace_back(next[i], reads[i].object);
    if (held.size() > room) held.erase(std::max_element(held.begin(), held.end()));
  }
  return fetched;
}

/// The same of LRU.
std::uint64_t lru(const ReadTrace& trace, std::size_t room) {
  std::deque<std::uint32_t> held;
  std::uint64_t fetched = 0;
  for (const ReadTrace::Read& read : trace.ranks[0].reads) {
    const auto found = std::find(held.begin(), held.end(), read.object);
    if (found != held.end()) {
      held.erase(found);
    } else {
      fetched += kBytes;
      if (held.size() == room) held.pop_front();
    }
    held.push_back(read.object);
  }
  return fetched;
}

TEST(SimulateCache, FetchesNearlyAsLittleAsBeladyAndLruAsMuchAsLru) {
  const std::uint64_t seed = test_seed();
  const ReadTrace trace = shuffled(400, 4, seed);
  for (const std::size_t room : {40U, 100U, 200U, 360U}) {
    const auto ours = simulate_cache(trace, room * kFileBytes, CachePolicy::kNextUse, {});
    const std::uint64_t best = optimum(trace, room);
    EXPECT_GE(ours.fetched_bytes, best) << room;
    // A sixty-fourth of the cache goes at a time, and is empty for a while.
    EXPECT_LE(ours.fetched_bytes, best * 102 / 100) << room << " seed " << seed;
    EXPECT_EQ(simulate_cache(trace, room * kFileBytes, CachePolicy::kLru, {}).fetched_bytes,
              lru(trace, room))
        << room;
    EXPECT_EQ(ours.hit_bytes + ours.fetched_bytes, 4 * 400 * kBytes);
    EXPECT_EQ(std::accumulate(ours.epoch_fetched_bytes.begin(), ours.epoch_fetched_bytes.end(),
                              std::uint64_t{0}),
              ours.fetched_bytes);
    EXPECT_EQ(ours.epoch_fetched_bytes.front(), 400 * kBytes);
  }
}

TEST(SimulateCache, EndsOfTheCurve) {
  const ReadTrace trace = shuffled(50, 3, 1);
  for (const CachePolicy policy : {CachePolicy::kNextUse, CachePolicy::kLru}) {
    EXPECT_EQ(simulate_cache(trace, 0, policy, {}).hit_bytes, 0U);
    const auto all = simulate_cache(trace, trace.file_bytes, policy, {});
    EXPECT_EQ(all.fetched_bytes, trace.data_bytes);
    EXPECT_EQ(all.evicted_bytes, 0U);
  }
}

TEST(SimulateCache, PartsOfAnExtentAreServedByTheWhole) {
  ReadTrace trace;
  trace.ranks.emplace_back();
  ReadTrace::Rank& rank = trace.ranks[0];
  rank.reads = {{.object = 1, .offset_bytes = 0, .length_bytes = 100},
                {.object = 1, .offset_bytes = 20, .length_bytes = 50},
                {.object = 1, .offset_bytes = 90, .length_bytes = 20},
                {.object = 1, .offset_bytes = 50, .length_bytes = 60},
                {.object = 2, .offset_bytes = 20, .length_bytes = 50},
                {.object = 1, .is_cached = false, .offset_bytes = 0, .length_bytes = 100}};
  rank.reads_before = {rank.reads.size()};
  rank.epoch_batches = {1};
  const auto found = simulate_cache(trace, 1 << 20, CachePolicy::kNextUse, {});
  EXPECT_EQ(found.hit_bytes, 50U + 60U);
  EXPECT_EQ(found.fetched_bytes, 100U + 20U + 50U + 100U);
}

TEST(SimulateCache, TheLoopWaitsForWhatTheLineBringsTooLate) {
  // 10 batches of 1 MiB each, asked for one by one when the batch before was taken.
  const ReadTrace trace = shuffled(10, 2, 1);
  const SimulatedMachine machine{.line_bytes_per_s = kBytes / 0.5,
                                 .first_byte_s = 0.1,
                                 .disk_bytes_per_s = kBytes / 0.01,
                                 .step_s = 0.2};
  const auto none = simulate_cache(trace, 0, CachePolicy::kNextUse, machine);
  // Each waits until it is there; it is asked for 0.2 s before it is needed, but for the first.
  EXPECT_NEAR(none.stall_s, 0.6 + 19 * 0.6, 20 * 0.2 + 1e-9);
  EXPECT_NEAR(none.run_s, none.stall_s + 20 * 0.2, 1e-9);
  const auto all = simulate_cache(trace, trace.file_bytes, CachePolicy::kNextUse, machine);
  EXPECT_LT(all.stall_s, none.stall_s * 0.6);
  const auto fast = simulate_cache(trace, trace.file_bytes, CachePolicy::kNextUse,
                                   {.line_bytes_per_s = 1e12, .first_byte_s = 0, .step_s = 1});
  EXPECT_NEAR(fast.stall_s, 0, 1e-2);
}

}  // namespace
}  // namespace headrace
