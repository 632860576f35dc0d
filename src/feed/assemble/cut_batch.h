#pragma once
/// \file
/// CutBatch: a batch whose every value is found, and what keeps the bytes of the values alive.
/// Where values are decoded it may come back from the finisher with some that could not be, whose
/// samples are then read again or replaced.
///
/// Threads: one owner at a time: the feed thread, then a worker of the finisher, then the feed
/// thread again, which lets go of what was kept alive.
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "feed/finish/batch.h"
#include "feed/plan/work.h"
#include "feed/residency/fetcher.h"

namespace headrace::feed {

struct CutBatch {
  BatchImpl::Identity identity;
  std::uint64_t generation = 0;
  std::uint32_t count = 0;
  CutMatrix cuts;  ///< `count` rows.
  std::vector<std::int64_t> ids;
  std::vector<std::uint8_t> mask;
  std::vector<SamplePlace> planned;  ///< Of each slot, what the order says.
  std::vector<SamplePlace> places;   ///< Of each slot, what is delivered: itself or a stand-in.
  std::vector<ReplacedSample> replaced;
  ValueNeeds needs;
  BatchLayout layout;
  Slab slab;  ///< Of the batch to be made.
  BatchTimeline timeline;

  // Where values are decoded:
  Slab workspace;                   ///< Reserved for decoders.
  std::uint32_t thread_count = 1;   ///< How many of them there is room for.
  std::vector<BadValue> bad;        ///< What could not be decoded, in no order.
  bool is_stripped = false;         ///< Its bytes and memory were given up while it waited.
  bool is_redone = false;           ///< Only slots in `redo` are to be decoded; the others are.
  std::vector<std::uint32_t> redo;  ///< Ascending.
  /// By block and index: samples that could not be decoded, and are read again.
  std::map<std::pair<std::uint32_t, std::uint32_t>, SecondLook> looks;
  Work work;                 ///< Its plan, for another round.
  bool is_planned = false;   ///< The reads of this round are.
  std::uint64_t ticket = 0;  ///< The finisher's.

  /// The values lie in the memory of these, pinned meanwhile, and of `kept`.
  std::vector<std::shared_ptr<Fetch>> pins;
  std::vector<Slab> kept;

  /// How many slots are to be made.
  std::uint32_t slots_to_make() const noexcept {
    return is_redone ? static_cast<std::uint32_t>(redo.size()) : count;
  }
  /// For another batch; keeps the allocations. \pre pins is empty.
  void clear() noexcept {
    replaced.clear();
    needs = {};
    layout = {};
    slab = Slab();
    timeline = {};
    workspace = Slab();
    bad.clear();
    is_stripped = false;
    is_redone = false;
    redo.clear();
    looks.clear();
    work = {};
    ticket = 0;
    kept.clear();
  }
};

}  // namespace headrace::feed
