#include "copy/part_window.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace headrace::copy_detail {
namespace {

constexpr std::uint64_t kPart = 8 << 20;

/// Parts over a link that is shared fairly; each takes no less than `least_s`.
struct Link {
  double bytes_per_s;
  double least_s;
};

/// Room for parts after `seconds` of keeping the window full: each batch of parts ends together.
std::size_t size_after(PartWindow& window, const Link& link, double seconds) {
  TimePoint now{std::chrono::hours(1)};
  const TimePoint end =
      now + std::chrono::duration_cast<TimePoint::duration>(std::chrono::duration<double>(seconds));
  while (now < end) {
    const std::size_t count = window.take(1000);
    const double wire_s = static_cast<double>(count * kPart) / link.bytes_per_s;
    const TimePoint began = now;
    now += std::chrono::duration_cast<TimePoint::duration>(
        std::chrono::duration<double>(std::max(wire_s, link.least_s)));
    for (std::size_t i = 0; i < count; ++i) window.end_part(kPart, began, now);
  }
  return window.size();
}

TEST(PartWindowTest, FewAreOpenOnASlowLink) {
  PartWindow window;
  EXPECT_EQ(window.take(100), PartWindow::kLeast);
  EXPECT_EQ(window.take(100), 0U);
  window.give_back(PartWindow::kLeast);
  EXPECT_LE(size_after(window, {.bytes_per_s = 10e6, .least_s = 0.1}, 60), 2 * PartWindow::kLeast);
}

TEST(PartWindowTest, GrowsWithinPartTimesWhereThereIsRoom) {
  PartWindow window;
  EXPECT_GE(size_after(window, {.bytes_per_s = 10e9, .least_s = 0.1}, 0.3), 64U);
}

TEST(PartWindowTest, SlowConnectionsAreNoSlowLink) {
  PartWindow window;
  EXPECT_GE(size_after(window, {.bytes_per_s = 10e9, .least_s = 2}, 12), 64U);
}

TEST(PartWindowTest, ALinkThatBecomesFasterIsFoundOut) {
  PartWindow window;
  EXPECT_LE(size_after(window, {.bytes_per_s = 10e6, .least_s = 0.1}, 60), 2 * PartWindow::kLeast);
  EXPECT_GE(size_after(window, {.bytes_per_s = 10e9, .least_s = 2}, 60), 32U);
}

/// Room after `seconds` of looking every 10 ms at a full window whose bytes come after 30 ms.
std::size_t size_after_looks(PartWindow& window, double bytes_per_s, double seconds) {
  const TimePoint begin{std::chrono::hours(1)};
  for (double at_s = 0; at_s < seconds; at_s += 0.01) {
    const double came = std::max(0.0, at_s - 0.03) * bytes_per_s;
    window.see_arrived(static_cast<std::uint64_t>(came), kPart,
                       begin + std::chrono::microseconds(static_cast<std::int64_t>(at_s * 1e6)));
  }
  return window.size();
}

TEST(PartWindowTest, WhatArrivesMakesRoomBeforeAPartHasEnded) {
  PartWindow window;
  // 320 MB in a second are 38 parts.
  EXPECT_EQ(size_after_looks(window, 320e6, 0.05), 38U);
}

TEST(PartWindowTest, WhatArrivesSlowlyMakesNone) {
  PartWindow window;
  EXPECT_EQ(size_after_looks(window, 10e6, 10), PartWindow::kLeast);
}

TEST(PartWindowTest, WhatPiledUpIsNoFastLink) {
  PartWindow window;
  const TimePoint begin{std::chrono::hours(1)};
  std::uint64_t bytes = 0;
  const auto see = [&](std::int64_t ms, std::uint64_t more) {
    bytes += more;
    window.see_arrived(bytes, kPart, begin + std::chrono::milliseconds(ms));
  };
  see(0, 0);
  see(300, 3 << 20);
  for (int ms = 310; ms < 3300; ms += 10) see(ms, 0);  // Nobody takes what comes.
  see(3300, 30 << 20);
  EXPECT_LE(window.size(), PartWindow::kLeast);
}

TEST(PartWindowTest, IsFullWhenAllIsTaken) {
  PartWindow window;
  EXPECT_FALSE(window.is_full());
  window.take(PartWindow::kLeast);
  EXPECT_TRUE(window.is_full());
}

}  // namespace
}  // namespace headrace::copy_detail
