// The rule of eviction against the best that is possible: all runs of a few blocks, not some. The
// best is found by trying every set that may be kept after every read.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
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
  if (from > run.size()) return ReadTrace::kNever;
  const auto found = std::find(run.begin() + static_cast<std::ptrdiff_t>(from), run.end(), block);
  return found == run.end() ? ReadTrace::kNever : static_cast<std::uint32_t>(found - run.begin());
}

/// All reads of a block, as a plan tells them: two at a time.
std::vector<std::pair<std::uint32_t, std::uint32_t>> told_reads(const Reads& run,
                                                                std::uint32_t block) {
  std::vector<std::pair<std::uint32_t, std::uint32_t>> told;
  for (std::uint32_t first = next_read(run, block, 0); first != ReadTrace::kNever;) {
    const std::uint32_t second = next_read(run, block, first + 1);
    told.emplace_back(first, second);
    first = second == ReadTrace::kNever ? second : next_read(run, block, second + 1);
  }
  // Whoever looks finds them in any order.
  std::reverse(told.begin(), told.end());
  return told;
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
    ReadTrace::Plan plan;
    for (std::uint32_t block = 0; block < kMostBlocks; ++block) {
      for (const auto& [first, second] : told_reads(run, block))
        plan.reads.push_back(
            {.object = block, .length_bytes = kBlockBytes, .first = first, .second = second});
    }
    rank.plans.push_back(std::move(plan));
    for (std::size_t i = 0; i < run.size(); ++i) {
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
  std::shared_ptr<OwnPlan> plan(const Reads& run) {
    std::vector<PlanEntry> entries;
    for (std::uint32_t block = 0; block < kMostBlocks; ++block) {
      for (const auto& [first, second] : told_reads(run, block))
        entries.push_back({.range = extent(block).name, .first = first, .second = second});
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

// One plan says it all, however often a block is read.
TEST(Belady, TheCacheOnDiskFetchesAsLittleAsPossibleInEveryRun) {
  for (int room = 1; room <= 3; ++room) {
    BeladyOnDisk cache(room);
    visit_runs(kMostBlocks, 7, [&](const Reads& run) {
      cache.clear();
      const auto plan = cache.plan(run);
      std::uint64_t fetches = 0;
      for (const std::uint32_t block : run) fetches += cache.read(block, *plan) ? 1 : 0;
      EXPECT_EQ(fetches, fewest_fetches(run, room)) << shown(run) << " with room for " << room;
    });
  }
}

}  // namespace
}  // namespace headrace::tier
