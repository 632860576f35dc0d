#include "order/mixture_epochs.h"

#include <algorithm>

#include "base/check.h"

namespace headrace::order_detail {
namespace {

/// Read ahead, small sources are in several epochs at once.
constexpr std::size_t kKeptEpochs = 64;

}  // namespace

SourceEpochs::SourceEpochs(const Schedule& schedule, std::uint32_t source,
                           std::uint64_t sample_count, std::uint32_t lane_count)
    : schedule_(schedule),
      source_(source),
      groups_(schedule.groups()),
      sample_count_(sample_count),
      share_(groups_) {
  for (std::uint32_t lane = 0; lane < lane_count; ++lane)
    share_[lane % groups_] += sample_count / lane_count + (lane < sample_count % lane_count);
}

std::uint64_t SourceEpochs::events_before(std::uint32_t group, std::uint64_t step) const noexcept {
  std::uint64_t sum = 0;
  for (std::uint32_t owner = 0; owner < groups_; ++owner) sum += count_before(owner, group, step);
  return sum;
}

std::uint64_t SourceEpochs::epoch_number(std::uint32_t group, std::uint64_t number) const {
  return events_before(group, schedule_.step_of(source_, group, number)) / sample_count_;
}

std::vector<std::uint64_t> SourceEpochs::numbers_after(std::uint64_t events,
                                                       std::uint64_t step) const {
  // The last step that begins with at most so many.
  std::uint64_t low = 0;
  for (std::uint64_t high = step; low < high;) {
    const std::uint64_t middle = high - (high - low) / 2;
    if (events_before(0, middle) <= events) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  std::vector<std::uint64_t> numbers(groups_);
  std::uint64_t sum = events_before(0, low);
  for (std::uint32_t group = 0; group < groups_; ++group) {
    const bool is_done = sum == events;
    numbers[group] = schedule_.count_in_group(source_, group, low + (is_done ? 0 : 1));
    if (!is_done) sum += numbers[group] - schedule_.count_in_group(source_, group, low);
  }
  HEADRACE_DCHECK(sum == events);
  return numbers;
}

void SourceEpochs::take_over(Epoch& epoch) const {
  epoch.own = share_;
  epoch.taken.resize(groups_);
  // When each group is next without a sample of its own.
  std::vector<std::uint64_t> step(groups_);
  const auto look_up = [&](std::uint32_t group) {
    step[group] = schedule_.step_of(
        source_, group, epoch.first[group] + epoch.own[group] + epoch.taken[group].size());
  };
  for (std::uint32_t group = 0; group < groups_; ++group) look_up(group);
  while (true) {
    const auto next = std::min_element(step.begin(), step.end());  // Ties: the lower group.
    if (*next == kNever) return;
    const auto group = static_cast<std::uint32_t>(next - step.begin());
    std::uint32_t owner = 0;
    std::uint64_t most = 0;
    for (std::uint32_t other = 0; other < groups_; ++other) {
      const std::uint64_t given = count_before(other, group, *next) - epoch.first[other];
      const std::uint64_t left = epoch.own[other] - std::min(epoch.own[other], given);
      if (left > most) {
        most = left;
        owner = other;
      }
    }
    if (most == 0) return;  // The epoch is over.
    epoch.taken[group].push_back({.group = owner, .index = --epoch.own[owner]});
    look_up(group);
    look_up(owner);
  }
}

std::shared_ptr<const SourceEpochs::Epoch> SourceEpochs::epoch_of(std::uint32_t group,
                                                                  std::uint64_t number) const {
  const std::uint64_t step = schedule_.step_of(source_, group, number);
  HEADRACE_CHECK(step != kNever);
  const std::uint64_t wanted = events_before(group, step) / sample_count_;
  {
    MutexLock lock(mutex_);
    const auto found = std::find_if(kept_.begin(), kept_.end(),
                                    [&](const auto& epoch) { return epoch->number == wanted; });
    if (found != kept_.end()) return *found;
  }
  auto made = std::make_shared<Epoch>();
  made->number = wanted;
  made->first = numbers_after(wanted * sample_count_, step);
  take_over(*made);
  MutexLock lock(mutex_);
  kept_.push_back(made);
  if (kept_.size() > kKeptEpochs) kept_.pop_front();
  return made;
}

}  // namespace headrace::order_detail
