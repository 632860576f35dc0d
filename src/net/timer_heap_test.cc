#include "net/timer_heap.h"

#include <gtest/gtest.h>

#include <deque>
#include <map>

#include "base/random.h"

namespace headrace {
namespace {

TimePoint at(std::int64_t us) { return TimePoint(Microseconds(us)); }

TEST(TimerHeap, FiresDueTimersEarliestFirst) {
  TimerHeap heap;
  Timer a(nullptr), b(nullptr), c(nullptr);
  heap.set(a, at(30));
  heap.set(b, at(10));
  heap.set(c, at(20));
  EXPECT_EQ(heap.next(), at(10));
  EXPECT_EQ(heap.pop_due(at(9)), nullptr);
  EXPECT_EQ(heap.pop_due(at(25)), &b);
  EXPECT_EQ(heap.pop_due(at(25)), &c);
  EXPECT_EQ(heap.pop_due(at(25)), nullptr);
  EXPECT_TRUE(a.is_set());
  EXPECT_FALSE(b.is_set());
  heap.clear(a);
  EXPECT_EQ(heap.next(), TimePoint::max());
}

TEST(TimerHeap, ClearOfAnUnsetTimerDoesNothing) {
  TimerHeap heap;
  Timer a(nullptr);
  heap.clear(a);
  EXPECT_EQ(heap.size(), 0U);
}

TEST(TimerHeap, BehavesLikeASortedMap) {
  Random random(7);
  TimerHeap heap;
  std::deque<Timer> timers;
  std::map<Timer*, TimePoint> model;
  for (int i = 0; i < 50; ++i) timers.emplace_back(nullptr);
  for (int step = 0; step < 20'000; ++step) {
    Timer& timer = timers[random.below(timers.size())];
    const TimePoint when = at(static_cast<std::int64_t>(random.below(1000)));
    switch (random.below(4)) {
      case 0:
      case 1:
        heap.set(timer, when);
        model[&timer] = when;
        break;
      case 2:
        heap.clear(timer);
        model.erase(&timer);
        break;
      default:
        if (Timer* due = heap.pop_due(when)) {
          ASSERT_LE(model.at(due), when);
          for (const auto& [other, other_when] : model) ASSERT_GE(other_when, model.at(due));
          model.erase(due);
        } else {
          for (const auto& [other, other_when] : model) ASSERT_GT(other_when, when);
        }
    }
    ASSERT_EQ(heap.size(), model.size());
    ASSERT_EQ(timer.is_set(), model.count(&timer) == 1);
  }
  for (Timer& timer : timers) heap.clear(timer);
}

}  // namespace
}  // namespace headrace
