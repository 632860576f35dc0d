#include "sim/behaviour.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace headrace::sim {
namespace {

using ::testing::HasSubstr;

std::string_view message_of(const Status& status) { return status.message(); }

TEST(Behaviour, EveryProfileIsValid) {
  for (const std::string& name : profile_names()) {
    const auto behaviour = profile_behaviour(name);
    ASSERT_TRUE(behaviour.has_value()) << name;
    EXPECT_TRUE(validate(*behaviour).ok()) << name;
    EXPECT_EQ(is_perfect(*behaviour), name == "none");
  }
}

TEST(Behaviour, UnknownProfileNamesTheKnownOnes) {
  const auto behaviour = profile_behaviour("s3");
  ASSERT_FALSE(behaviour.has_value());
  EXPECT_EQ(behaviour.error().code(), Code::kInvalidArgument);
  EXPECT_THAT(std::string(message_of(behaviour.error())), HasSubstr("s3-standard"));
}

TEST(Behaviour, BadNumbersAreRefusedByName) {
  const auto refused = [](auto change, const char* name) {
    SimBehaviour behaviour;
    change(behaviour);
    const Status status = validate(behaviour);
    EXPECT_EQ(status.code(), Code::kInvalidArgument) << name;
    EXPECT_THAT(std::string(message_of(status)), HasSubstr(name));
  };
  refused([](SimBehaviour& b) { b.error_rate = 1.5; }, "error_rate");
  refused([](SimBehaviour& b) { b.reset_rate = -0.1; }, "reset_rate");
  refused([](SimBehaviour& b) { b.slow_first_byte_ms = -1; }, "slow_first_byte_ms");
  refused([](SimBehaviour& b) { b.throttle_rate = std::nan(""); }, "throttle_rate");
  refused([](SimBehaviour& b) { b.first_byte_p50_ms = 5; }, "first_byte_p99_ms");
  refused([](SimBehaviour& b) { b.first_byte_p99_ms = 5; }, "first_byte_p99_ms");
  refused([](SimBehaviour& b) { b.throttle_rate = b.error_rate = 0.6; }, "throttle_rate");
  refused([](SimBehaviour& b) { b.reset_rate = b.truncate_rate = 0.6; }, "truncate_rate");
  refused([](SimBehaviour& b) { b.connection_bytes_per_s = 1; }, "connection_bytes_per_s");
}

TEST(Behaviour, JsonChangesOnlyWhatItNames) {
  SimBehaviour current;
  current.error_rate = 0.25;
  auto changed = behaviour_from_json(R"({"throttle_rate": 0.5, "seed": 3})", current);
  ASSERT_TRUE(changed.has_value());
  EXPECT_EQ(changed->throttle_rate, 0.5);
  EXPECT_EQ(changed->error_rate, 0.25);
}

TEST(Behaviour, JsonProfileComesBeforeFields) {
  auto changed =
      behaviour_from_json(R"({"error_rate": 0.1, "profile": "s3-standard"})", SimBehaviour());
  ASSERT_TRUE(changed.has_value());
  EXPECT_EQ(changed->error_rate, 0.1);
  EXPECT_EQ(changed->first_byte_p50_ms, 30);
}

TEST(Behaviour, JsonRoundTrips) {
  const SimBehaviour express = *profile_behaviour("s3-express");
  auto back = behaviour_from_json(behaviour_to_json(express), SimBehaviour());
  ASSERT_TRUE(back.has_value());
  EXPECT_EQ(behaviour_to_json(*back), behaviour_to_json(express));
}

TEST(Behaviour, BadJsonIsRefused) {
  for (const char* text : {"", "[]", "{", R"({"error_rates": 1})", R"({"error_rate": "1"})",
                           R"({"profile": 3})", R"({"profile": "x"})", R"({"error_rate": 2})"}) {
    auto changed = behaviour_from_json(text, SimBehaviour());
    ASSERT_FALSE(changed.has_value()) << text;
    EXPECT_EQ(changed.error().code(), Code::kInvalidArgument);
  }
}

TEST(Fate, DependsOnSeedIdentityAndOrdinalOnly) {
  SimBehaviour behaviour = *profile_behaviour("s3-standard");
  behaviour.reset_rate = 0.5;
  const Fate a = draw_fate(behaviour, 1, 2, 3, Traffic::kGet);
  const Fate b = draw_fate(behaviour, 1, 2, 3, Traffic::kGet);
  EXPECT_EQ(a.first_byte_us, b.first_byte_us);
  EXPECT_EQ(a.cut, b.cut);
  EXPECT_EQ(a.cut_fraction, b.cut_fraction);
  EXPECT_NE(draw_fate(behaviour, 2, 2, 3, Traffic::kGet).first_byte_us, a.first_byte_us);
  EXPECT_NE(draw_fate(behaviour, 1, 3, 3, Traffic::kGet).first_byte_us, a.first_byte_us);
  EXPECT_NE(draw_fate(behaviour, 1, 2, 4, Traffic::kGet).first_byte_us, a.first_byte_us);
}

TEST(Fate, FirstByteTimesHaveTheQuantilesAskedFor) {
  SimBehaviour behaviour{.first_byte_p50_ms = 30, .first_byte_p99_ms = 80};
  std::vector<std::uint64_t> times;
  for (std::uint64_t i = 0; i < 20'000; ++i) {
    times.push_back(draw_fate(behaviour, 7, i, 0, Traffic::kGet).first_byte_us);
  }
  std::sort(times.begin(), times.end());
  EXPECT_NEAR(static_cast<double>(times[10'000]), 30e3, 0.5e3);
  EXPECT_NEAR(static_cast<double>(times[19'800]), 80e3, 4e3);
}

TEST(Fate, RatesAreMet) {
  SimBehaviour behaviour{.slow_first_byte_rate = 0.05,
                         .throttle_rate = 0.1,
                         .error_rate = 0.2,
                         .reset_rate = 0.3,
                         .truncate_rate = 0.4};
  constexpr int kCount = 20'000;
  int slow_down = 0, error = 0, reset = 0, truncate = 0, slow = 0;
  for (std::uint64_t i = 0; i < kCount; ++i) {
    const Fate fate = draw_fate(behaviour, 11, 42, i, Traffic::kGet);
    slow_down += fate.answer == Fate::Answer::kSlowDown;
    error += fate.answer == Fate::Answer::kInternalError;
    reset += fate.cut == Fate::Cut::kReset;
    truncate += fate.cut == Fate::Cut::kTruncate;
    slow += fate.first_byte_us == 5'000'000;
    EXPECT_LT(fate.cut_fraction, 1.0);
  }
  EXPECT_NEAR(slow_down, kCount * 0.1, kCount * 0.01);
  EXPECT_NEAR(error, kCount * 0.2, kCount * 0.01);
  EXPECT_NEAR(reset, kCount * 0.3, kCount * 0.012);
  EXPECT_NEAR(truncate, kCount * 0.4, kCount * 0.012);
  EXPECT_NEAR(slow, kCount * 0.05, kCount * 0.006);
}

TEST(Fate, OnlyGetsAreCutOrSlow) {
  SimBehaviour behaviour{.slow_first_byte_rate = 1, .reset_rate = 1};
  const Fate fate = draw_fate(behaviour, 0, 0, 0, Traffic::kMetadata);
  EXPECT_EQ(fate.cut, Fate::Cut::kNone);
  EXPECT_EQ(fate.first_byte_us, 0u);
}

TEST(Fate, ChangingOneRateLeavesTheOtherFaultsWhereTheyWere) {
  SimBehaviour few, many;
  few.reset_rate = many.reset_rate = 0.5;
  many.throttle_rate = 0.3;
  many.first_byte_p50_ms = 10;
  many.first_byte_p99_ms = 20;
  for (std::uint64_t i = 0; i < 100; ++i) {
    EXPECT_EQ(draw_fate(few, 5, i, 0, Traffic::kGet).cut,
              draw_fate(many, 5, i, 0, Traffic::kGet).cut);
  }
}

}  // namespace
}  // namespace headrace::sim
