#pragma once
/// \file
/// CutBatch: a batch whose every value is found, and what keeps the bytes of the values alive.
///
/// Threads: one owner at a time: the feed thread, then a worker of the finisher, then the feed
/// thread again, which lets go of what was kept alive.
#include <memory>
#include <vector>

#include "feed/finish/batch.h"
#include "feed/residency/fetcher.h"

namespace headrace::feed {

struct CutBatch {
  BatchImpl::Identity identity;
  std::uint64_t generation = 0;
  std::uint32_t count = 0;
  CutMatrix cuts;  ///< `count` rows.
  std::vector<std::int64_t> ids;
  std::vector<std::uint8_t> mask;
  std::vector<ReplacedSample> replaced;
  BatchLayout layout;
  Slab slab;  ///< Of the batch to be made.
  BatchTimeline timeline;

  /// The values lie in the memory of these, pinned meanwhile, and of `kept`.
  std::vector<std::shared_ptr<Fetch>> pins;
  std::vector<Slab> kept;

  /// For another batch; keeps the allocations. \pre pins is empty.
  void clear() noexcept {
    replaced.clear();
    layout = {};
    slab = Slab();
    timeline = {};
    kept.clear();
  }
};

}  // namespace headrace::feed
