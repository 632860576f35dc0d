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

}  // namespace
}  // namespace headrace::copy_detail
