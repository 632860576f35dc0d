#pragma once
/// \file
/// LanedNeeds: the NeedIndex of an order of lanes: for each block the stretches of batches that
/// need it, all known from the beginning.
///
/// Threads: immutable; any thread.
#include <cstdint>
#include <vector>

#include "order/need_index.h"

namespace headrace {

/// Samples [begin, end) of a block in one window of a lane, which batches [first, last] need;
/// batches in units of 2^batch_shift().
struct LaneNeed {
  std::uint32_t block = 0;
  std::uint32_t begin = 0;
  std::uint32_t end = 0;
  std::uint32_t first = 0;
  std::uint32_t last = 0;
};

/// Of a plan whose batches are more than 32 bits count; 0 for all others.
std::uint32_t batch_shift(const BatchPlan& plan) noexcept;

/// What the batches of `plan` need, window by window. \pre ranks lie in the world.
std::vector<LaneNeed> find_lane_needs(const LaneOrder& order, const BatchPlan& plan,
                                      NeedIndex::Ranks ranks);

class LanedNeeds final : public NeedIndex {
 public:
  /// \pre ranks lie in the world.
  LanedNeeds(const LaneOrder& order, std::uint32_t block_count, const BatchPlan& plan, Ranks ranks);

  std::uint64_t next_need(std::uint32_t block, std::uint64_t from) const noexcept override;
  std::uint64_t known_end() const noexcept override { return kNever; }
  void look_ahead(std::uint64_t) override {}
  void pass(std::uint64_t) override {}

  std::uint64_t memory_bytes() const noexcept;

 private:
  /// Batches [first, last], shifted.
  struct Stretch {
    std::uint32_t first = 0;
    std::uint32_t last = 0;
  };

  const std::uint32_t shift_;          ///< Batches are kept in units of 2^shift_.
  std::vector<std::uint32_t> begins_;  ///< By block: its first stretch; one more for the end.
  std::vector<Stretch> stretches_;     ///< Of a block: disjoint, rising.
};

}  // namespace headrace
