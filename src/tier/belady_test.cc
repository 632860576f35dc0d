// The rule of eviction against the best that is possible: all runs of a few blocks, not some. The
// best is found by trying every set that may be kept after every read.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/temporary_directory.h"
#include "headrace/simulate_cache.h"
#include "tier/disk_cache.h"

namespace headrace::tier {
namespace {

constexpr std::uint64_t kBlockBytes = 4096;
constexpr std::uint64_t kBlockFileBytes = file_bytes({{}, 0, kBlockBytes});
constexpr std::size_t kMostBlocks = 4;

/// Which block is read, in order.
using Reads = std::vector<std::uint32_t>;

std::string shown(const Reads& run) {
  std::string out;
  for (const std::uint32_t block : run) out += static_cast<char>('a' + block);
  return out;
}

/// Calls `visit` for every run of 1 to `longest` reads of at most `blocks` blocks, but for those
/// that differ from one in the blocks' names alone.
void visit_runs(std::uint32_t blocks, std::size_t longest,
                const std::function<void(const Reads&)>& visit) {
  Reads run;
  const std::function<void(std::uint32_t)> extend = [&](std::uint32_t known) {
    if (!run.empty()) visit(run);
    if (run.size() == longest) return;
    for (std::uint32_t block = 0; block < std::min(known + 1, blocks); ++block) {
      run.push_back(block);
      extend(std::max(known, block + 1));
      run.pop_back();
    }
  };
  extend(0);
}

/// Fetches of the best there is, with room for so many blocks: after a read any of what is held
/// and what was read may be kept.
std::uint64_t fewest_fetches(const Reads& run, int room) {
  constexpr std::size_t kSets = std::size_t{1} << kMostBlocks;
  constexpr std::uint64_t kMany = 1000;
  std::array<std::uint64_t, kSets> cost{};
  cost.fill(kMany);
  cost[0] = 0;  // By what is held.
  for (const std::uint32_t block : run) {
    std::array<std::uint64_t, kSets> next{};
    next.fill(kMany);
    for (std::size_t held = 0; held < kSets; ++held) {
      const std::size_t bit = std::size_t{1} << block;
      const std::uint64_t paid = cost[held] + ((held & bit) == 0 ? 1 : 0);
      for (std::size_t kept = 0; kept < kSets; ++kept) {
        const bool is_possible = (kept & ~(held | bit)) == 0 && __builtin_popcountll(kept) <= room;
        if (is_possible) next[kept] = std::min(next[kept], paid);
      }
    }
    cost = next;
  }
  return *std::min_element(cost.begin(), cost.end());
}

/// When a block is read next from read number `from` on.
std::uint32_t next_read(const Reads& run, std::uint32_t block, std::size_t from) {
  const auto found = std::find(run.begin() + static_cast<std::ptrdiff_t>(from), run.end(), block);
  return found == run.end() ? ReadTrace::kNever : static_cast<std::uint32_t>(found - run.begin());
}

TEST(Belady, TheBestIsWhatItIsByHand) {
  EXPECT_EQ(fewest_fetches({0, 1, 0, 1}, 1), 3U) << "a is kept, and b fetched twice";
  EXPECT_EQ(fewest_fetches({0, 1, 0, 1}, 2), 2U);
  EXPECT_EQ(fewest_fetches({0, 1, 2, 0, 1, 2}, 2), 4U);
  EXPECT_EQ(fewest_fetches({0, 1, 2, 3, 0, 1, 2, 3}, 3), 5U);
}

TEST(Belady, TheSimulatedCacheFetchesAsLittleAsPossibleInEveryRun) {
  std::uint64_t count = 0;
  visit_runs(kMostBlocks, 8, [&](const Reads& run) {
    ReadTrace trace;
    trace.ranks.emplace_back();
    ReadTrace::Rank& rank = trace.ranks[0];
    for (std::size_t i = 0; i < run.size(); ++i) {
      ReadTrace::Plan plan{.since = i, .reads = {}};
      for (std::uint32_t block = 0; block < kMostBlocks; ++block) {
        plan.reads.push_back({.object = block,
                              .length_bytes = kBlockBytes,
                              .first = next_read(run, block, i),
                              .second = ReadTrace::kNever});
        // This read and the one after it, as a loader's plan tells them.
        if (block == run[i]) plan.reads.back().second = next_read(run, block, i + 1);
      }
      rank.plans.push_back(std::move(plan));
      rank.reads.push_back({.object = run[i], .length_bytes = kBlockBytes, .need = i});
      rank.reads_before.push_back(i + 1);
    }
    rank.epoch_batches = {run.size()};
    for (int room = 1; room <= 3; ++room, ++count) {
      const auto ours = simulate_cache(trace, static_cast<std::uint64_t>(room) * kBlockFileBytes,
                                       CachePolicy::kNextUse, {});
      EXPECT_EQ(ours.fetched_bytes / kBlockBytes, fewest_fetches(run, room))
          << shown(run) << " with room for " << room;
    }
  });
  EXPECT_EQ(count, 3U * 3771) << "runs were left out";
}

/// A cache directory with room for some blocks.
class BeladyOnDisk {
 public:
  explicit BeladyOnDisk(int room) {
    auto cache =
        DiskCache::create({.directory = directory_.path(),
                           .limit_bytes = static_cast<std::uint64_t>(room) * kBlockFileBytes,
                           .free_floor_bytes = 0,
                           .reader_count = 1,
                           .writer_count = 1});
    EXPECT_TRUE(cache) << cache.error().message();
    cache_ = *std::move(cache);
  }

  void clear() { EXPECT_TRUE(cache_->remove("")); }
  std::shared_ptr<OwnPlan> plan(const Reads& run, std::size_t from) {
    std::vector<PlanEntry> entries;
    for (std::uint32_t block = 0; block < kMostBlocks; ++block) {
      const std::uint32_t first = next_read(run, block, from);
      if (first == PlanEntry::kNever) continue;
      entries.push_back({.range = extent(block).name,
                         .first = first,
                         .second = next_read(run, block, first + 1)});
    }
    return cache_->publish_plan(std::move(entries));
  }
  /// \return whether it was fetched.
  bool read(std::uint32_t block, OwnPlan& plan) {
    const ExtentInfo wanted = extent(block);
    plan.note_read(wanted.name);
    bool is_there = false;
    cache_->read(wanted, bytes_, TimePoint::max(),
                 [&](Tier::Found found, std::uint64_t) { is_there = found == Tier::Found::kAll; });
    if (is_there) return false;
    cache_->keep(wanted, bytes_, cache_->begin_flight(wanted.name), Slab());
    cache_->flush();
    return true;
  }

 private:
  static ExtentInfo extent(std::uint32_t block) {
    return {.name = {object_id("belady", "blocks", "1"), block * kBlockBytes, kBlockBytes},
            .object_size_bytes = kMostBlocks * kBlockBytes,
            .url = "blocks",
            .etag = "1"};
  }

  TemporaryDirectory directory_;
  std::shared_ptr<DiskCache> cache_;
  std::array<std::byte, kBlockBytes> bytes_{};
};

// A plan knows the next two reads of each block: it is told anew before each.
TEST(Belady, TheCacheOnDiskFetchesAsLittleAsPossibleInEveryRun) {
  for (int room = 1; room <= 2; ++room) {
    BeladyOnDisk cache(room);
    visit_runs(3, 7, [&](const Reads& run) {
      cache.clear();
      std::uint64_t fetches = 0;
      for (std::size_t i = 0; i < run.size(); ++i)
        fetches += cache.read(run[i], *cache.plan(run, i)) ? 1 : 0;
      EXPECT_EQ(fetches, fewest_fetches(run, room)) << shown(run) << " with room for " << room;
    });
  }
}

// Where no block is read more than twice, one plan says it all.
TEST(Belady, OnePlanIsEnoughForTwoEpochs) {
  for (int room = 1; room <= 3; ++room) {
    BeladyOnDisk cache(room);
    visit_runs(kMostBlocks, 8, [&](const Reads& run) {
      for (std::uint32_t block = 0; block < kMostBlocks; ++block) {
        if (std::count(run.begin(), run.end(), block) > 2) return;
      }
      cache.clear();
      const auto plan = cache.plan(run, 0);
      std::uint64_t fetches = 0;
      for (const std::uint32_t block : run) fetches += cache.read(block, *plan) ? 1 : 0;
      EXPECT_EQ(fetches, fewest_fetches(run, room)) << shown(run) << " with room for " << room;
    });
  }
}

}  // namespace
}  // namespace headrace::tier
