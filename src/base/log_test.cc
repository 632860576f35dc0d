#include "headrace/log.h"

#include <gmock/gmock.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "base/manual_clock.h"

namespace headrace {
namespace {

using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

std::vector<LogLine> taken(Log& log, bool ends_spans = false) {
  std::vector<LogLine> lines;
  log.take([&](const LogLine& line) { lines.push_back(line); }, ends_spans);
  return lines;
}

std::vector<std::string> texts(Log& log, bool ends_spans = false) {
  std::vector<std::string> out;
  for (const LogLine& line : taken(log, ends_spans)) out.push_back(line.text);
  return out;
}

constexpr LogEvent kRepeated{.area = "store",
                             .level = LogLevel::kInfo,
                             .one = "request to",
                             .many = "requests to",
                             .what = "repeated",
                             .warn_from = 3,
                             .advice = "see there"};

class LogTest : public ::testing::Test {
 protected:
  LogTest() { log.set_level(LogLevel::kDebug); }
  ManualClock clock;
  Log log{{.capacity = 4, .clock = &clock}};
};

TEST_F(LogTest, KeepsLinesInOrderUntilTheyAreTaken) {
  log.write(LogLevel::kInfo, "index", "first");
  log.write(LogLevel::kWarning, "loader", "second");
  const auto lines = taken(log);
  ASSERT_THAT(lines, SizeIs(2));
  EXPECT_EQ(lines[0].area, "index");
  EXPECT_EQ(lines[0].text, "first");
  EXPECT_EQ(lines[1].level, LogLevel::kWarning);
  EXPECT_THAT(taken(log), IsEmpty());
}

TEST_F(LogTest, IsOffAtFirstAndKeepsNothingBelowItsLevel) {
  Log silent;
  silent.write(LogLevel::kError, "store", "lost");
  silent.count(kRepeated, "s3://b", "lost");
  EXPECT_THAT(taken(silent, true), IsEmpty());
  log.set_level(LogLevel::kWarning);
  log.write(LogLevel::kInfo, "store", "below");
  EXPECT_THAT(taken(log), IsEmpty());
}

TEST_F(LogTest, SaysHowManyLinesItDropped) {
  for (int i = 0; i < 7; ++i) log.write(LogLevel::kInfo, "store", std::to_string(i));
  EXPECT_THAT(texts(log), ElementsAre("0", "1", "2", "3",
                                      "3 more lines came faster than they were taken, and were "
                                      "dropped"));
  EXPECT_THAT(texts(log), IsEmpty());
}

TEST_F(LogTest, TellsEventsOnceASpan) {
  log.count(kRepeated, "s3://b", "one");
  EXPECT_THAT(texts(log), IsEmpty());
  clock.advance(seconds(9));
  log.count(kRepeated, "s3://b", "two");
  EXPECT_THAT(texts(log), IsEmpty());
  clock.advance(seconds(2));
  EXPECT_THAT(texts(log), ElementsAre("2 requests to s3://b repeated in the last 10 s, last: two"));
  clock.advance(seconds(60));
  EXPECT_THAT(texts(log), IsEmpty());
}

TEST_F(LogTest, AnEventAfterItsSpanBeginsAnother) {
  log.count(kRepeated, "s3://b", "one");
  clock.advance(seconds(30));
  log.count(kRepeated, "s3://b", "two");
  EXPECT_THAT(texts(log), ElementsAre("1 request to s3://b repeated in the last 10 s, last: one"));
}

TEST_F(LogTest, CountsSubjectsAndKindsApart) {
  LogEvent other = kRepeated;
  other.what = "hedged";
  log.count(kRepeated, "s3://a", "x");
  log.count(kRepeated, "s3://b", "y");
  log.count(other, "s3://b", "z");
  EXPECT_THAT(texts(log, true), ElementsAre("1 request to s3://a repeated in the last 1 s, last: x",
                                            "1 request to s3://b repeated in the last 1 s, last: y",
                                            "1 request to s3://b hedged in the last 1 s, last: z"));
}

TEST_F(LogTest, TheFirstOfASpanIsToldAtOnceWhereAskedTo) {
  LogEvent urgent = kRepeated;
  urgent.is_told_at_once = true;
  log.count(urgent, "s3://b", "one");
  EXPECT_THAT(texts(log), ElementsAre("1 request to s3://b repeated in the last 1 s, last: one"));
  log.count(urgent, "s3://b", "two");
  log.count(urgent, "s3://b", "three");
  EXPECT_THAT(texts(log), IsEmpty());
  clock.advance(seconds(11));
  EXPECT_THAT(texts(log),
              ElementsAre("2 requests to s3://b repeated in the last 10 s, last: three"));
  log.count(urgent, "s3://b", "four");
  EXPECT_THAT(texts(log), SizeIs(1));
  EXPECT_THAT(texts(log, true), IsEmpty());
}

TEST_F(LogTest, ManyEventsAreAWarningWithAdvice) {
  for (int i = 0; i < 3; ++i) log.count(kRepeated, "s3://b", "503");
  const auto lines = taken(log, true);
  ASSERT_THAT(lines, SizeIs(1));
  EXPECT_EQ(lines[0].level, LogLevel::kWarning);
  EXPECT_EQ(lines[0].text, "3 requests to s3://b repeated in the last 1 s, last: 503; see there");
}

TEST_F(LogTest, FewEventsAreNotToldToWhoWantsWarningsOnly) {
  log.set_level(LogLevel::kWarning);
  log.count(kRepeated, "s3://b", "503");
  EXPECT_THAT(taken(log, true), IsEmpty());
  for (int i = 0; i < 3; ++i) log.count(kRepeated, "s3://b", "503");
  EXPECT_THAT(taken(log, true), SizeIs(1));
}

TEST_F(LogTest, MoreSubjectsThanItCountsAreToldOneByOne) {
  Log large({.capacity = 1000, .clock = &clock});
  large.set_level(LogLevel::kInfo);
  for (int i = 0; i < 66; ++i) large.count(kRepeated, "s3://" + std::to_string(i), "x");
  EXPECT_THAT(taken(large), SizeIs(2));
  EXPECT_THAT(taken(large, true), SizeIs(64));
}

TEST_F(LogTest, ASinkMayWrite) {
  log.write(LogLevel::kInfo, "store", "a");
  log.take([&](const LogLine& line) { log.write(LogLevel::kInfo, "store", line.text + "!"); });
  EXPECT_THAT(texts(log), ElementsAre("a!"));
}

TEST_F(LogTest, LosesNoLineAmongManyWriters) {
  Log large({.capacity = 100'000, .clock = &clock});
  large.set_level(LogLevel::kInfo);
  std::atomic<int> left{4};
  std::vector<std::jthread> writers;
  for (int t = 0; t < 4; ++t) {
    writers.emplace_back([&] {
      for (int i = 0; i < 1000; ++i) large.write(LogLevel::kInfo, "store", "x");
      --left;
    });
  }
  std::size_t count = 0;
  while (left > 0) count += taken(large).size();
  count += taken(large).size();
  EXPECT_EQ(count, 4000U);
}

TEST(ProcessLog, IsAnotherOneOfTheSameLevelAfterRenewing) {
  Log& before = process_log();
  before.set_level(LogLevel::kWarning);
  before.write(LogLevel::kWarning, "store", "of the parent");
  renew_process_log();
  EXPECT_NE(&process_log(), &before);
  EXPECT_EQ(process_log().level(), LogLevel::kWarning);
  EXPECT_THAT(taken(process_log()), IsEmpty());
  EXPECT_THAT(taken(before), SizeIs(1));
  process_log().set_level(LogLevel::kOff);
  delete &before;  // Nothing of this program points to it.
}

}  // namespace
}  // namespace headrace
