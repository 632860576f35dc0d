#include "tier/plan_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>

#include "base/cut_off.h"
#include "base/random.h"
#include "base/temporary_directory.h"
#include "base/test_seed.h"

namespace headrace::tier {
namespace {

class Plans : public ::testing::Test {
 protected:
  std::shared_ptr<OwnPlan> publish(std::vector<PlanEntry> entries) {
    auto plan = OwnPlan::publish(fd_.get(), std::move(entries));
    EXPECT_TRUE(plan) << plan.error().message();
    return plan ? *std::move(plan) : nullptr;
  }
  std::optional<std::uint32_t> need(const ExtentName& extent) {
    PlanBoard board;
    board.look(fd_.get());
    return board.next_need(extent);
  }
  std::size_t file_count() const {
    return static_cast<std::size_t>(
        std::distance(std::filesystem::directory_iterator(directory_.path()),
                      std::filesystem::directory_iterator()));
  }

  /// The plan of a process that was killed.
  void leave_dead() {
    const pid_t child = ::fork();
    if (child == 0) {
      const auto plan = OwnPlan::publish(fd_.get(), {{{{7, 7}, 0, 100}, 3, 15}});
      ::kill(::getpid(), SIGKILL);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
  }

  TemporaryDirectory directory_;
  Fd fd_{::open(directory_.path().c_str(), O_RDONLY | O_DIRECTORY)};
};

constexpr ObjectId kObject{7, 7};

TEST_F(Plans, SayWhenARangeIsNeeded) {
  const auto plan = publish({{{kObject, 100, 50}, 9, 20}, {{kObject, 0, 100}, 3, 15}});
  EXPECT_EQ(need({kObject, 0, 100}), 3U);
  EXPECT_EQ(need({kObject, 10, 5}), 3U) << "a part";
  EXPECT_EQ(need({kObject, 120, 5}), 9U);
  EXPECT_EQ(need({kObject, 90, 20}), 3U) << "across two: the sooner";
  EXPECT_EQ(need({kObject, 150, 10}), std::nullopt);
  EXPECT_EQ(need({{7, 8}, 0, 10}), std::nullopt);
}

TEST_F(Plans, WhatWasReadIsNeededTheNextTime) {
  const auto plan = publish({{{kObject, 0, 100}, 3, 15}});
  plan->note_read({kObject, 50, 50});
  EXPECT_EQ(need({kObject, 0, 100}), 3U) << "a later part of it says nothing";
  plan->note_read({kObject, 0, 50});
  EXPECT_EQ(need({kObject, 0, 100}), 15U);
  plan->note_read({kObject, 0, 100});
  EXPECT_EQ(need({kObject, 0, 100}), PlanEntry::kNever) << "not again, as far as is known";
}

TEST_F(Plans, ARangeIsNeededAsOftenAsItIsTold) {
  const auto plan = publish({{{kObject, 0, 100}, 22, 40},
                             {{kObject, 100, 50}, 8, PlanEntry::kNever},
                             {{kObject, 0, 100}, 3, 15}});
  for (const std::uint32_t next : {3U, 15U, 22U, 40U, PlanEntry::kNever}) {
    EXPECT_EQ(need({kObject, 0, 100}), next);
    EXPECT_EQ(need({kObject, 10, 5}), next) << "a part";
    EXPECT_EQ(need({kObject, 90, 30}), std::min(next, 8U)) << "across two";
    plan->note_read({kObject, 0, 100});
  }
  EXPECT_EQ(need({kObject, 100, 10}), 8U);
  plan->note_read({kObject, 0, 200});
  EXPECT_EQ(need({kObject, 100, 10}), PlanEntry::kNever);
}

TEST_F(Plans, OfSeveralReadersTheSoonestCounts) {
  const auto one = publish({{{kObject, 0, 100}, 30, 40}});
  const auto other = publish({{{kObject, 0, 100}, 5, 60}});
  EXPECT_EQ(need({kObject, 0, 100}), 5U);
  other->note_read({kObject, 0, 100});
  EXPECT_EQ(need({kObject, 0, 100}), 30U);
}

TEST_F(Plans, GoWithTheirReader) {
  { const auto plan = publish({{{kObject, 0, 100}, 3, 15}}); }
  EXPECT_EQ(need({kObject, 0, 100}), std::nullopt);
  EXPECT_EQ(file_count(), 0U);
}

TEST_F(Plans, OfTheDeadAreDeleted) {
  leave_dead();
  EXPECT_EQ(file_count(), 1U);
  EXPECT_EQ(need({kObject, 0, 100}), std::nullopt);
  EXPECT_EQ(file_count(), 0U);
}

TEST_F(Plans, OfTheDeadAreDeletedByTheNextReader) {
  for (int i = 0; i < 3; ++i) leave_dead();
  EXPECT_EQ(file_count(), 1U);
  const auto plan = publish({{{kObject, 0, 100}, 7, 40}});
  EXPECT_EQ(file_count(), 1U);
  EXPECT_EQ(need({kObject, 0, 100}), 7U);
}

TEST_F(Plans, FilesThatAreNoneAreLeftOutOfIt) {
  const auto plan = publish({{{kObject, 0, 100}, 3, 15}});
  const auto file = *std::filesystem::directory_iterator(directory_.path());
  std::fstream(file.path(), std::ios::in | std::ios::out).write("x", 1);
  EXPECT_EQ(need({kObject, 0, 100}), std::nullopt);
}

TEST_F(Plans, CuttingOneOffHarmsNobody) {
  const auto plan = publish({{{kObject, 0, 100}, 3, 15}, {{kObject, 100, 100}, 4, 16}});
  const auto file = *std::filesystem::directory_iterator(directory_.path());
  for (const off_t size : {5000, 4096 + 40, 20, 0}) {
    cut_off(file.path(), size);  // SIGBUS, were it mapped.
    EXPECT_EQ(need({kObject, 0, 100}), std::nullopt);
    plan->note_read({kObject, 100, 100});
  }
}

TEST_F(Plans, HalfOnesOfTheDeadAreDeleted) {
  std::ofstream(directory_.path() + "/.new-7") << "HRPLAN01";
  const auto plan = publish({{{kObject, 0, 100}, 3, 15}});
  EXPECT_EQ(need({kObject, 0, 100}), 3U);
  EXPECT_EQ(file_count(), 1U);
}

// Two containers that share a directory: the same number of process in both.
TEST_F(Plans, ProcessesOfTheSameNumberDoNotReplaceEachOthers) {
  std::vector<std::shared_ptr<OwnPlan>> plans;
  for (std::uint64_t i = 0; i < 3; ++i) plans.push_back(publish({{{kObject, i * 10, 10}, 1, 2}}));
  EXPECT_EQ(file_count(), 3U);
  for (const auto& entry : std::filesystem::directory_iterator(directory_.path())) {
    EXPECT_EQ(entry.path().filename().string().find(std::to_string(::getpid()) + "-"),
              std::string::npos);
  }
}

// Against a look at every entry.
TEST_F(Plans, FindWhatALookAtEveryEntryFinds) {
  Random random(test_seed());
  const auto below = [&](std::uint64_t end) {
    return static_cast<std::uint32_t>(random.below(end));
  };
  for (int round = 0; round < 100; ++round) {
    std::vector<PlanEntry> entries;
    std::map<ExtentName, std::multiset<std::uint32_t>> needs;
    for (std::uint64_t object = 0; object < 3; ++object) {
      std::uint64_t at = random.below(5);
      while (at < 100) {
        const ExtentName range{{object, 0}, at, 1 + random.below(9)};
        at += range.length_bytes;
        if (random.below(4) == 0) continue;
        for (std::uint64_t i = 0, count = 1 + random.below(3); i < count; ++i) {
          entries.push_back({range, below(50), 50 + below(50)});
          needs[range].insert({entries.back().first, entries.back().second});
        }
      }
    }
    const auto plan = publish(entries);
    for (int i = 0; i < 40; ++i) {
      const ExtentName range{{random.below(4), 0}, random.below(100), 1 + random.below(30)};
      std::optional<std::uint32_t> expected;
      const bool is_read = random.below(3) == 0;
      if (is_read) plan->note_read(range);
      for (auto& [told, left] : needs) {
        if (told.object != range.object ||
            told.offset_bytes >= range.offset_bytes + range.length_bytes ||
            range.offset_bytes >= told.offset_bytes + told.length_bytes)
          continue;
        if (is_read && told.offset_bytes >= range.offset_bytes && !left.empty())
          left.erase(left.begin());
        expected = std::min(expected.value_or(PlanEntry::kNever),
                            left.empty() ? PlanEntry::kNever : *left.begin());
      }
      ASSERT_EQ(need(range), expected);
    }
  }
}

}  // namespace
}  // namespace headrace::tier
