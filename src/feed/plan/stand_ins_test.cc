#include "feed/plan/stand_ins.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "feed/fake_dataset.h"

namespace headrace::feed {
namespace {

using feed_test::FakeDataset;
using feed_test::FakeSpec;
using ::testing::HasSubstr;

Status corrupt() { return Status(Code::kCorrupt, "a bad sum"); }

FakeDataset make_dataset(std::vector<std::uint32_t> block_samples) {
  FakeSpec spec;
  spec.block_samples = std::move(block_samples);
  return FakeDataset(std::move(spec));
}

std::vector<std::pair<std::uint64_t, std::uint64_t>> pairs(const std::vector<SampleRange>& ranges) {
  std::vector<std::pair<std::uint64_t, std::uint64_t>> out;
  for (const SampleRange& range : ranges) out.emplace_back(range.begin, range.end);
  return out;
}

TEST(StandInStep, VisitsEachCandidateOnce) {
  for (std::uint64_t count = 1; count < 500; ++count) {
    const std::uint64_t step = stand_in_step(count);
    std::set<std::uint64_t> seen;
    for (std::uint64_t k = 0; k < count; ++k) seen.insert((7 + k * step) % count);
    ASSERT_EQ(seen.size(), count);
  }
  EXPECT_EQ(stand_in_step(1000), 619U);
}

TEST(StandIns, AGoodSampleStandsForItself) {
  const FakeDataset dataset = make_dataset({10, 10});
  const StandIns stand_ins(dataset, {.replaces_found = true});
  EXPECT_TRUE(stand_ins.is_active());
  EXPECT_FALSE(StandIns(dataset, {}).is_active());
  EXPECT_EQ(*stand_ins.find({1, 3}), (SamplePlace{1, 3}));
}

TEST(StandIns, StaysInTheBlockWhileItHasGoodCandidates) {
  const FakeDataset dataset = make_dataset({10, 10});
  const StandIns stand_ins(dataset, {.quarantine = {{13, 15}}});
  // The step of 10 is 7.
  EXPECT_EQ(*stand_ins.find({1, 3}), (SamplePlace{1, 0}));
  EXPECT_EQ(*stand_ins.find({1, 4}), (SamplePlace{1, 1}));
}

TEST(StandIns, NeighboursThatAreBadTogetherGetDifferentOnes) {
  const FakeDataset dataset = make_dataset({1000});
  const StandIns stand_ins(dataset, {.quarantine = {{100, 400}}});
  std::set<std::uint32_t> chosen;
  for (std::uint32_t i = 100; i < 400; ++i) chosen.insert((*stand_ins.find({0, i})).index);
  EXPECT_EQ(chosen.size(), 300U);
}

TEST(StandIns, LeavesABadBlockButNotTheSource) {
  const FakeDataset dataset = make_dataset({4, 4, 4, 4, 4, 4});
  StandIns stand_ins(dataset, {.replaces_found = true, .source_blocks = {0, 3}});
  ASSERT_TRUE(stand_ins.take_bad_block(4, corrupt()).ok());
  EXPECT_TRUE(stand_ins.is_block_bad(4));
  EXPECT_GE((*stand_ins.find({4, 2})).block, 3U);
  ASSERT_TRUE(stand_ins.take_bad_block(3, corrupt()).ok());
  EXPECT_EQ(*stand_ins.find({4, 2}), (SamplePlace{5, 2}));
  ASSERT_TRUE(stand_ins.take_bad_block(5, corrupt()).ok());
  const auto none = stand_ins.find({4, 2});
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code(), Code::kCorrupt);
  EXPECT_THAT(std::string(none.error().message()), HasSubstr("sample 18"));
  EXPECT_EQ(stand_ins.find_or_same({4, 2}), (SamplePlace{4, 2}));
}

TEST(StandIns, DoNotDependOnWhatWasFoundFirst) {
  const FakeDataset dataset = make_dataset({8, 5, 9});
  const std::vector<SamplePlace> bad = {{0, 1}, {0, 5}, {1, 0}, {2, 2}, {2, 7}, {0, 2}};
  StandIns forward(dataset, {.replaces_found = true});
  StandIns backward(dataset, {.replaces_found = true});
  for (const auto& place : bad) ASSERT_TRUE(forward.take_bad_sample(place, corrupt()).ok());
  for (auto it = bad.rbegin(); it != bad.rend(); ++it)
    ASSERT_TRUE(backward.take_bad_sample(*it, corrupt()).ok());
  for (const auto& place : bad) EXPECT_EQ(*forward.find(place), *backward.find(place));
}

TEST(StandIns, OnlyCorruptDataIsReplacedAndOnlyIfAsked) {
  const FakeDataset dataset = make_dataset({8});
  StandIns listed(dataset, {.quarantine = {{0, 1}}});
  EXPECT_EQ(listed.take_bad_sample({0, 3}, corrupt()).code(), Code::kCorrupt);
  StandIns stand_ins(dataset, {.replaces_found = true});
  EXPECT_EQ(stand_ins.take_bad_block(0, Status(Code::kChanged, "x")).code(), Code::kChanged);
  EXPECT_TRUE(stand_ins.report().empty());
  ASSERT_TRUE(stand_ins.take_bad_sample({0, 3}, corrupt()).ok());
  ASSERT_TRUE(stand_ins.take_bad_sample({0, 3}, corrupt()).ok());
  ASSERT_EQ(stand_ins.found_count(), 1U);
  EXPECT_EQ(stand_ins.report()[0].position, 3U);
  EXPECT_EQ(stand_ins.report()[0].message, "a bad sum");
}

TEST(StandIns, ManyBadSamplesEndTheRun) {
  const FakeDataset dataset = make_dataset({70'000});
  StandIns stand_ins(dataset, {.replaces_found = true});
  Status status;
  std::uint32_t count = 0;
  while (status.ok()) status = stand_ins.take_bad_sample({0, count++}, corrupt());
  EXPECT_EQ(count, 65'537U);
  EXPECT_THAT(std::string(status.message()), HasSubstr("--quarantine"));
}

TEST(Quarantine, ListsAreSortedAndJoined) {
  EXPECT_EQ(pairs(joined({{5, 6}, {1, 2}, {2, 4}, {6, 6}, {3, 4}})), pairs({{1, 4}, {5, 6}}));
  EXPECT_EQ(quarantine_digest({}), "");
  const std::vector<SampleRange> one = {{1, 4}};
  const std::vector<SampleRange> other = {{1, 5}};
  EXPECT_EQ(quarantine_digest(one).size(), 16U);
  EXPECT_NE(quarantine_digest(one), quarantine_digest(other));
}

TEST(Quarantine, FindsSamplesBlocksAndShards) {
  const FakeDataset dataset = make_dataset({10, 7, 12, 1});  // Two blocks a shard.
  const std::vector<QuarantineEntry> list = {{.key = "shard-1", .position = -1},
                                             {.key = "shard-0", .position = 3},
                                             {.key = "shard-0", .position = 10, .sample_count = 7},
                                             {.key = "", .position = 5},
                                             {.key = "index.hri", .position = -1}};
  const auto found = find_quarantined(dataset, list);
  ASSERT_TRUE(found) << found.error().message();
  EXPECT_EQ(pairs(*found), pairs({{3, 4}, {5, 6}, {10, 30}}));
}

TEST(Quarantine, FindsTheSampleOfAnObject) {
  FakeSpec spec;
  spec.is_object_per_sample = true;
  const FakeDataset dataset(spec);
  const std::vector<QuarantineEntry> list = {{.key = "file-12", .position = 12}};
  const auto found = find_quarantined(dataset, list);
  ASSERT_TRUE(found) << found.error().message();
  EXPECT_EQ(pairs(*found), pairs({{12, 13}}));
}

TEST(Quarantine, RefusesTheListOfAnotherDataset) {
  const FakeDataset dataset = make_dataset({10, 7});
  const QuarantineEntry wrong[] = {{.key = "other", .position = -1},
                                   {.key = "other", .position = 3},
                                   {.key = "", .position = -1},
                                   {.key = "shard-0", .position = 17},
                                   {.key = "shard-0", .position = 16, .sample_count = 2}};
  for (const QuarantineEntry& entry : wrong) {
    const auto found = find_quarantined(dataset, {&entry, 1});
    ASSERT_FALSE(found);
    EXPECT_EQ(found.error().code(), Code::kInvalidArgument);
    EXPECT_THAT(std::string(found.error().message()), HasSubstr("another dataset"));
  }
}

}  // namespace
}  // namespace headrace::feed
