#include <gtest/gtest.h>

#include <condition_variable>
#include <set>
#include <string>
#include <thread>

#include "base/check.h"
#include "base/endian.h"
#include "base/fd.h"
#include "base/list_item.h"
#include "base/manual_clock.h"
#include "base/mutex.h"
#include "base/random.h"
#include "base/strings.h"
#include "headrace/status.h"

namespace headrace {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;

TEST(Status, SuccessIsOnePointerAndSaysOk) {
  static_assert(sizeof(Status) == sizeof(void*));
  const Status status;
  EXPECT_TRUE(status.ok());
  EXPECT_EQ(status.code(), Code::kOk);
  EXPECT_EQ(status.message(), "ok");
  EXPECT_TRUE(status.clone().ok());
}

TEST(Status, AnnotatePutsTheContextInFront) {
  const Status status = Status(Code::kCorrupt, "bad sum").annotate("shard 3").annotate("opening");
  EXPECT_EQ(status.message(), "opening: shard 3: bad sum");
  EXPECT_EQ(status.clone().code(), Code::kCorrupt);
}

TEST(Status, OnlyUnavailableAndThrottledAreRetryable) {
  for (int c = 0; c <= static_cast<int>(Code::kInternal); ++c) {
    const auto code = static_cast<Code>(c);
    EXPECT_EQ(is_retryable(code), code == Code::kUnavailable || code == Code::kThrottled)
        << code_name(code);
  }
}

TEST(Result, TryAssignLeavesWithTheError) {
  const auto half = [](int n) -> Result<int> {
    if (n % 2 != 0) return Status(Code::kInvalidArgument, "odd");
    return n / 2;
  };
  const auto quarter = [&](int n) -> Result<int> {
    HEADRACE_TRY_ASSIGN(const int first, half(n));
    return half(first);
  };
  EXPECT_EQ(*quarter(8), 2);
  EXPECT_EQ(quarter(6).error().message(), "odd");
}

TEST(ManualClock, StandsStillUntilMoved) {
  ManualClock clock;
  const TimePoint start = clock.now();
  EXPECT_EQ(clock.now(), start);
  clock.advance(milliseconds(1500));
  EXPECT_EQ(clock.now() - start, milliseconds(1500));
}

TEST(ManualClock, WallClockCountsWholeSeconds) {
  ManualClock clock(std::chrono::sys_seconds(seconds(100)));
  clock.advance(milliseconds(1999));
  EXPECT_EQ(clock.wall_now().time_since_epoch(), seconds(101));
}

TEST(SystemClock, MovesForward) {
  const TimePoint a = system_clock().now();
  EXPECT_GE(system_clock().now(), a);
  EXPECT_GT(system_clock().wall_now().time_since_epoch(), seconds(1'600'000'000));
}

TEST(MutexLock, WaitUntilReportsThatTheTimePassed) {
  Mutex mutex;
  std::condition_variable never;
  MutexLock lock(mutex);
  EXPECT_FALSE(lock.wait_until(never, TimePoint::min()));
}

TEST(MutexLock, WaitWithoutLimitEndsWithANotification) {
  Mutex mutex;
  std::condition_variable changed;
  bool is_set = false;
  std::thread setter([&] {
    MutexLock lock(mutex);
    is_set = true;
    changed.notify_one();
  });
  {
    MutexLock lock(mutex);
    while (!is_set) EXPECT_TRUE(lock.wait_until(changed, TimePoint::max()));
  }
  setter.join();
}

TEST(Endian, LoadsAndStoresAtAnyAlignment) {
  std::byte bytes[11] = {};
  store_le<std::uint64_t>(bytes + 3, 0x0102030405060708ULL);
  EXPECT_EQ(bytes[3], std::byte{8});
  EXPECT_EQ(load_le<std::uint64_t>(bytes + 3), 0x0102030405060708ULL);
  EXPECT_EQ(load_le<std::uint16_t>(bytes + 3), 0x0708U);
}

TEST(Random, IsDeterministicAndBounded) {
  Random a(5);
  Random b(5);
  std::set<std::uint64_t> seen;
  for (int i = 0; i < 1000; ++i) {
    const std::uint64_t value = a.below(10);
    ASSERT_EQ(value, b.below(10));
    ASSERT_LT(value, 10U);
    seen.insert(value);
    const double unit = a.unit();
    ASSERT_EQ(unit, b.unit());
    ASSERT_TRUE(unit >= 0 && unit < 1);
  }
  EXPECT_EQ(seen.size(), 10U);
}

TEST(Random, FirstValuesOfSplitMix64) {
  // Seed 1234567, from the reference implementation's published test values.
  Random random(1234567);
  EXPECT_EQ(random.next(), 6457827717110365317ULL);
  EXPECT_EQ(random.next(), 3203168211198807973ULL);
}

TEST(Fd, MovedFromIsEmpty) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  Fd reader(ends[0]);
  Fd writer(ends[1]);
  Fd moved = std::move(writer);
  EXPECT_FALSE(writer);  // NOLINT(bugprone-use-after-move): the documented state is what is tested
  EXPECT_EQ(moved.get(), ends[1]);
  moved = Fd();
  char byte = 0;
  EXPECT_EQ(::read(reader.get(), &byte, 1), 0);  // end of file: the writer was closed
}

TEST(Strings, ParseDecimalTakesTheWholeTextOnly) {
  EXPECT_EQ(parse_decimal<std::uint32_t>("4294967295"), 4294967295U);
  for (const char* bad : {"", "4294967296", "-1", "+1", " 1", "1 ", "1.0", "0x1"}) {
    EXPECT_EQ(parse_decimal<std::uint32_t>(bad), std::nullopt) << bad;
  }
}

TEST(Strings, TakesListsApart) {
  std::string_view list = " a ,b\t,, c";
  for (const char* item : {"a", "b", "", "c"}) EXPECT_EQ(take_item(list), item);
  EXPECT_EQ(list, "");
  list = "x=1,2; y";
  EXPECT_EQ(take_item(list, ';'), "x=1,2");
  EXPECT_EQ(list, " y");
}

TEST(Strings, TrimAndHex) {
  EXPECT_EQ(trim(" \ta b\t "), "a b");
  EXPECT_EQ(trim(" \t"), "");
  EXPECT_EQ(trim("\n a\r\n"), "\n a\r\n");
  EXPECT_EQ(trim("\n\t a \n b\r\n", kWhiteSpace), "a \n b");
  EXPECT_EQ(trim("\r\n", kWhiteSpace), "");
  const std::byte bytes[] = {std::byte{0}, std::byte{0xaf}};
  EXPECT_EQ(to_hex(bytes), "00af");
  std::string back;
  EXPECT_TRUE(from_hex("00aF", back));
  EXPECT_EQ(back, std::string("\0\xaf", 2));
  for (const char* bad : {"0", "0g", "-1", " 1"}) EXPECT_FALSE(from_hex(bad, back)) << bad;
}

TEST(CheckDeathTest, NamesTheBrokenInvariant) {
  EXPECT_DEATH(HEADRACE_CHECK(1 + 1 == 3), "1 \\+ 1 == 3");
}

}  // namespace
}  // namespace headrace
