#include "shard/dataset/index_log.h"

#include <gmock/gmock.h>

#include <cstdint>
#include <vector>

#include "base/log_capture.h"
#include "base/manual_clock.h"

namespace headrace::detail {
namespace {

using std::chrono::seconds;
using testing::ElementsAre;
using testing::IsEmpty;

TEST(IndexLog, TellsProgressEveryFewSecondsAndPassesAllOn) {
  LogCapture told(LogLevel::kInfo);
  ManualClock clock;
  IndexLog log("s3://b/d", clock);
  std::vector<std::uint64_t> passed;
  const auto progress =
      log.listen([&](std::uint64_t done, std::uint64_t) { passed.push_back(done); });
  progress(1, 300);
  EXPECT_THAT(told.take(), IsEmpty());
  clock.advance(seconds(5));
  progress(2, 300);
  progress(3, 300);
  clock.advance(seconds(6));
  progress(4, 0);
  EXPECT_THAT(told.take(), ElementsAre("index info: indexing s3://b/d: 2 of 300 shards read in 5 s",
                                       "index info: indexing s3://b/d: 4 shards read in 11 s"));
  EXPECT_THAT(passed, ElementsAre(1, 2, 3, 4));
  process_log().set_level(LogLevel::kOff);
  clock.advance(seconds(6));
  log.listen({})(5, 300);
  EXPECT_THAT(told.take(), IsEmpty());
}

}  // namespace
}  // namespace headrace::detail
