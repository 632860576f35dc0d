#pragma once
/// \file
/// SourceEpochs: which sample of a source each of its places in a mixture is (order `mixture`,
/// version 2). Pure.
///
/// Words: the *events* of a source are its samples in a run, in the sequence of steps and, inside a
/// step, of groups. Each N of them (N: its samples) are one of its *epochs*. Group g takes from its
/// own lanes while they last; then it *takes over* the last sample of the group that has most left.
/// So every epoch gives each sample once, and what an event gives depends on earlier ones alone.
///
/// Place: docs/order.md, section "Mixtures"; used by mixture_order.cc. Immutable but for a cache;
/// any thread.
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "base/mutex.h"
#include "order/mixture_schedule.h"

namespace headrace::order_detail {

class SourceEpochs {
 public:
  /// Lanes of the source's own order are dealt out to the groups: lane l is group (l mod P)'s.
  SourceEpochs(const Schedule& schedule, std::uint32_t source, std::uint64_t sample_count,
               std::uint32_t lane_count);

  /// A sample of a group that another group takes over: its number among those of its owner.
  struct Taken {
    std::uint32_t group = 0;
    std::uint64_t index = 0;
  };
  struct Epoch {
    std::uint64_t number = 0;
    std::vector<std::uint64_t> first;       ///< By group: its first sample number in this epoch.
    std::vector<std::uint64_t> own;         ///< By group: how many it takes of its own.
    std::vector<std::vector<Taken>> taken;  ///< By group: those that follow.
  };
  /// The epoch that holds the group's sample number `number` (counted over the run). \pre the
  /// schedule reaches it.
  std::shared_ptr<const Epoch> epoch_of(std::uint32_t group, std::uint64_t number) const
      HEADRACE_EXCLUDES(mutex_);
  /// The number of that epoch alone.
  std::uint64_t epoch_number(std::uint32_t group, std::uint64_t number) const;

 private:
  /// Events before the one of `group` at `step`.
  std::uint64_t events_before(std::uint32_t group, std::uint64_t step) const noexcept;
  /// Samples that `owner` had before the event of `group` at `step`.
  std::uint64_t count_before(std::uint32_t owner, std::uint32_t group,
                             std::uint64_t step) const noexcept {
    return schedule_.count_in_group(source_, owner, step + (owner < group ? 1 : 0));
  }
  /// Sample numbers of the groups when `events` events are over. \pre that is so at `step`.
  std::vector<std::uint64_t> numbers_after(std::uint64_t events, std::uint64_t step) const;
  void take_over(Epoch& epoch) const;

  const Schedule& schedule_;
  const std::uint32_t source_;
  const std::uint32_t groups_;
  const std::uint64_t sample_count_;
  std::vector<std::uint64_t> share_;  ///< By group: samples of its lanes.
  mutable Mutex mutex_;
  mutable std::deque<std::shared_ptr<const Epoch>> kept_ HEADRACE_GUARDED_BY(mutex_);
};

}  // namespace headrace::order_detail
