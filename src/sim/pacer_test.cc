#include "sim/pacer.h"

#include <gtest/gtest.h>

namespace headrace::sim {
namespace {

constexpr TimePoint kStart{std::chrono::hours(1)};

/// Time until `bytes` have moved, waking exactly when told to.
std::chrono::nanoseconds time_to_move(Pacer& pacer, std::uint64_t bytes, TimePoint& now,
                                      int& wake_ups) {
  const TimePoint begin = now;
  pacer.start(now);
  while (bytes > 0) {
    const std::uint64_t count = pacer.allow(bytes, now);
    if (count == 0) {
      now = pacer.ready_at(bytes, now);
      ++wake_ups;
      continue;
    }
    pacer.take(count);
    bytes -= count;
  }
  return now - begin;
}

TEST(Pacer, WithoutARateEverythingMoves) {
  Pacer pacer;
  EXPECT_FALSE(pacer.is_active());
  EXPECT_EQ(pacer.allow(1 << 30, kStart), std::uint64_t{1} << 30);
}

TEST(Pacer, KeepsTheRateWithFewWakeUps) {
  Pacer pacer;
  pacer.set_rate(90e6);
  TimePoint now = kStart;
  int wake_ups = 0;
  const auto time = time_to_move(pacer, 8 << 20, now, wake_ups);
  EXPECT_NEAR(std::chrono::duration<double>(time).count(), (8 << 20) / 90e6, 0.001);
  EXPECT_LT(wake_ups, 30);
}

TEST(Pacer, IdleTimeIsNotSavedUp) {
  Pacer pacer;
  pacer.set_rate(1e6);
  TimePoint now = kStart;
  int wake_ups = 0;
  time_to_move(pacer, 100'000, now, wake_ups);
  now += std::chrono::seconds(10);
  const auto time = time_to_move(pacer, 100'000, now, wake_ups);
  EXPECT_GT(std::chrono::duration<double>(time).count(), 0.08);
}

TEST(Pacer, LateWakeUpsDoNotLowerTheRate) {
  Pacer pacer;
  pacer.set_rate(10e6);
  TimePoint now = kStart;
  pacer.start(now);
  std::uint64_t left = 2'000'000;
  while (left > 0) {
    const std::uint64_t count = pacer.allow(left, now);
    pacer.take(count);
    left -= count;
    if (left > 0) now = pacer.ready_at(left, now) + std::chrono::milliseconds(3);
  }
  EXPECT_NEAR(std::chrono::duration<double>(now - kStart).count(), 0.2, 0.012);
}

}  // namespace
}  // namespace headrace::sim
