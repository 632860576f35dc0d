#include "io/read_ahead_room.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

namespace headrace::io {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

/// A store that sends at most `most_bytes` at a time and brings each request after `latency_s`.
struct Way {
  double most_bytes;
  double latency_s;
  double goodput(std::uint64_t ahead_bytes) const {
    return std::min(most_bytes, static_cast<double>(ahead_bytes)) / latency_s;
  }
  double full() const { return most_bytes / latency_s; }
  /// What is asked for beyond `most_bytes` waits in the store.
  bool holds_back(std::uint64_t ahead_bytes) const {
    return static_cast<double>(ahead_bytes) * 0.75 >= most_bytes;
  }
};

class RoomRun {
 public:
  RoomRun(std::uint64_t fixed_bytes, std::uint64_t first_bytes, std::uint64_t most_bytes,
          std::uint32_t seed = 7)
      : fixed_bytes_(fixed_bytes), random_(seed) {
    room.begin(fixed_bytes, first_bytes, most_bytes);
  }

  /// So many bytes a second come, whatever is asked for.
  void run_at(double bytes_per_s, double seconds) {
    for (int i = 0; i < static_cast<int>(seconds * 1000); ++i) {
      step(bytes_per_s, true, false, static_cast<double>(ahead()) / bytes_per_s);
    }
  }
  /// Looks each millisecond; the training loop takes `wanted_bytes_per_s`.
  void run(const Way& way, double seconds, double wanted_bytes_per_s = 1e18) {
    for (int i = 0; i < static_cast<int>(seconds * 1000); ++i) {
      const double goodput = way.goodput(ahead());
      step(std::min(goodput, wanted_bytes_per_s), goodput < wanted_bytes_per_s,
           way.holds_back(ahead()), way.latency_s);
    }
  }
  /// As run(), of a link that carries `most_bytes` and holds nothing back: requests take longer
  /// instead. Bytes come in bursts of a tenth of a second.
  void run_bursts(const Way& way, double seconds) {
    double burst = 1;
    for (int i = 0; i < static_cast<int>(seconds * 1000); ++i) {
      if (i % 100 == 0) burst = std::uniform_real_distribution(0.6, 1.4)(random_);
      const double goodput = way.goodput(ahead());
      const double took_s = static_cast<double>(ahead()) / goodput;
      step(goodput * burst, true, false,
           took_s * std::uniform_real_distribution(0.8, 1.2)(random_));
    }
  }
  std::uint64_t ahead() const { return room.bytes() - fixed_bytes_; }

  ReadAheadRoom room;

 private:
  void step(double bytes_per_s, bool is_waited_for, bool is_held, double took_s) {
    const auto arrived = static_cast<std::uint64_t>(bytes_per_s / 1000);
    arrivals_.bytes += arrived;
    if (is_held) arrivals_.held_bytes += arrived;
    ++arrivals_.requests;
    arrivals_.log_us += std::log(took_s * 1e6);
    now_ += std::chrono::milliseconds(1);
    room.on_refused();
    if (is_waited_for) room.on_wait();
    room.look(arrivals_, now_);
  }

  const std::uint64_t fixed_bytes_;
  Arrivals arrivals_;
  TimePoint now_{};
  std::mt19937 random_;
};

TEST(ReadAheadRoom, FillsTheWayWithinTwoSecondsAndTakesNoMoreThanTwiceThat) {
  const Way ways[] = {{117e6, 0.045}, {455e6, 0.13}, {100e6, 0.01},
                      {750e6, 0.1},   {100e6, 0.2},  {40e6, 0.04}};
  for (const Way& way : ways) {
    RoomRun run(512 * kMiB, 576 * kMiB, 4096 * kMiB);
    run.run(way, 2);
    EXPECT_GE(way.goodput(run.ahead()), 0.9 * way.full()) << way.most_bytes;
    run.run(way, 60);
    EXPECT_LE(static_cast<double>(run.ahead()), std::max(2.7 * way.most_bytes, 64.0 * kMiB))
        << "memory is the bound, not the target";
  }
}

TEST(ReadAheadRoom, BurstsDoNotKeepItSmall) {
  const Way ways[] = {{225e6, 0.15}, {455e6, 0.13}, {750e6, 0.6}};
  for (const Way& way : ways) {
    RoomRun run(512 * kMiB, 576 * kMiB, 4096 * kMiB);
    run.run_bursts(way, 20 * way.latency_s);
    EXPECT_GE(way.goodput(run.ahead()), 0.9 * way.full()) << way.most_bytes;
    run.run_bursts(way, 60);
    EXPECT_LE(static_cast<double>(run.ahead()), 4 * way.most_bytes) << way.most_bytes;
  }
}

// Of a full processor no step brings more, and none is kept because bytes came in a burst.
TEST(ReadAheadRoom, LuckKeepsNoStepOfAFullProcessor) {
  double sum = 0;
  for (std::uint32_t seed = 0; seed < 50; ++seed) {
    RoomRun run(512 * kMiB, 576 * kMiB, 4096 * kMiB, seed);
    run.run_bursts({48e6, 0.016}, 60);
    sum += static_cast<double>(run.ahead());
    EXPECT_LE(run.ahead(), 128 * kMiB) << seed;
  }
  EXPECT_LE(sum / 50, 80.0 * kMiB);
}

TEST(ReadAheadRoom, StaysWhereTheTrainingLoopDoesNotWait) {
  RoomRun run(0, 64 * kMiB, 4096 * kMiB);
  run.run({117e6, 0.045}, 30, 5e8);
  EXPECT_EQ(run.ahead(), 64 * kMiB);
}

TEST(ReadAheadRoom, StaysWhereNothingIsPutOff) {
  ReadAheadRoom room;
  room.begin(0, 64 * kMiB, 4096 * kMiB);
  for (std::uint64_t i = 1; i < 10; ++i) {
    room.on_wait();
    room.look({.bytes = i * 64 * kMiB}, TimePoint(std::chrono::milliseconds(i)));
  }
  EXPECT_EQ(room.bytes(), 64 * kMiB);
}

TEST(ReadAheadRoom, GrowsNoFurtherThanMemory) {
  RoomRun run(100 * kMiB, 164 * kMiB, 300 * kMiB);
  run.run({5e9, 0.5}, 30);
  EXPECT_EQ(run.ahead(), 200 * kMiB);
  EXPECT_TRUE(run.room.is_all());
  EXPECT_TRUE(run.room.is_short());
}

TEST(ReadAheadRoom, IsNotShortWhereAllOfTheMemoryBroughtNoMore) {
  RoomRun full(100 * kMiB, 164 * kMiB, 300 * kMiB);
  full.run({60e6, 0.06}, 30);
  EXPECT_FALSE(full.room.is_short()) << "the way is full with less";
  RoomRun tight(100 * kMiB, 164 * kMiB, 164 * kMiB);
  tight.run({5e9, 0.5}, 30);
  EXPECT_FALSE(tight.room.is_short()) << "nobody has tried what more would bring";
}

TEST(ReadAheadRoom, FollowsAStoreThatTakesMore) {
  RoomRun run(0, 64 * kMiB, 4096 * kMiB);
  run.run({60e6, 0.06}, 10);
  EXPECT_LE(run.ahead(), 128 * kMiB);
  const Way faster{240e6, 0.06};
  run.run(faster, 10);
  EXPECT_GE(faster.goodput(run.ahead()), 0.9 * faster.full());
}

TEST(ReadAheadRoom, TakesBackAStepThatBroughtNothing) {
  // Nothing is held back, yet no more comes: the processor is what limits.
  RoomRun run(0, 64 * kMiB, 4096 * kMiB);
  const Way slow{1e18, 0.1};
  run.run(slow, 0.3);
  EXPECT_GT(run.ahead(), 64 * kMiB);
  run.run_at(7e8, 5);
  const std::uint64_t found = run.ahead();
  EXPECT_LE(found, 128 * kMiB);
  run.run_at(7e8, 60);
  EXPECT_LE(run.ahead(), found + found / 4 + 1);
}

TEST(ReadAheadRoom, AStepThatWasTakenBackByMistakeComesAgainSoon) {
  RoomRun run(512 * kMiB, 576 * kMiB, 4096 * kMiB);
  const Way way{455e6, 0.13};
  run.run(way, 0.3);
  const std::uint64_t grown = run.ahead();
  for (int i = 0; i < 1000 && run.ahead() >= grown; ++i) run.run_at(4e8, 0.01);  // it is touched
  ASSERT_LT(run.ahead(), grown);
  run.run(way, 3);
  EXPECT_GE(way.goodput(run.ahead()), 0.9 * way.full());
}

TEST(ReadAheadRoom, WhileOneReadHoldsEverythingUpNothingGrows) {
  ReadAheadRoom room;
  room.begin(0, 64 * kMiB, 4096 * kMiB);
  for (int i = 0; i < 1000; ++i) {
    room.on_refused();
    room.on_wait();
    room.look({.bytes = 63 * kMiB}, TimePoint(std::chrono::milliseconds(i)));
  }
  EXPECT_EQ(room.bytes(), 64 * kMiB);
}

TEST(ReadAheadRoom, AnotherRunBeginsWithWhatWasFound) {
  RoomRun run(0, 64 * kMiB, 4096 * kMiB);
  run.run({400e6, 0.1}, 10);
  const std::uint64_t found = run.ahead();
  EXPECT_GT(found, 300 * kMiB);
  run.room.begin(50 * kMiB, 114 * kMiB, 4096 * kMiB);
  EXPECT_EQ(run.room.bytes(), 50 * kMiB + found);
  run.room.begin(50 * kMiB, 114 * kMiB, 200 * kMiB);
  EXPECT_EQ(run.room.bytes(), 200 * kMiB);
}

}  // namespace
}  // namespace headrace::io
