#include "shard/dataset/index_log.h"

#include <gmock/gmock.h>

#include <string>
#include <vector>

#include "base/manual_clock.h"
#include "headrace/log.h"

namespace headrace::detail {
namespace {

using std::chrono::seconds;
using testing::ElementsAre;
using testing::IsEmpty;

std::vector<std::string> logged_lines() {
  std::vector<std::string> lines;
  process_log().take([&](const LogLine& line) { lines.push_back(line.text); });
  return lines;
}

TEST(IndexLog, TellsProgressEveryFewSecondsAndPassesAllOn) {
  process_log().set_level(LogLevel::kInfo);
  ManualClock clock;
  IndexLog log("s3://b/d", clock);
  std::vector<std::uint64_t> passed;
  const auto progress =
      log.listen([&](std::uint64_t done, std::uint64_t) { passed.push_back(done); });
  progress(1, 300);
  EXPECT_THAT(logged_lines(), IsEmpty());
  clock.advance(seconds(5));
  progress(2, 300);
  progress(3, 300);
  clock.advance(seconds(6));
  progress(4, 0);
  EXPECT_THAT(logged_lines(), ElementsAre("indexing s3://b/d: 2 of 300 shards read in 5 s",
                                          "indexing s3://b/d: 4 shards read in 11 s"));
  EXPECT_THAT(passed, ElementsAre(1, 2, 3, 4));
  process_log().set_level(LogLevel::kOff);
  clock.advance(seconds(6));
  log.listen({})(5, 300);
  EXPECT_THAT(logged_lines(), IsEmpty());
}

}  // namespace
}  // namespace headrace::detail
