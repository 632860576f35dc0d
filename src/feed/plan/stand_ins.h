#pragma once
/// \file
/// StandIns: which samples are bad, and which sample is delivered in the place of each.
///
/// The choice is a pure function of the planned sample, the block table and the set of bad samples
/// (docs/design/0027-bad-samples.md), so it does not matter when or where a bad one was found.
///
/// Threads: report() from any thread, all else from the feed thread.
#include <cstdint>
#include <unordered_set>
#include <vector>

#include "base/mutex.h"
#include "headrace/dataset.h"
#include "headrace/loader.h"
#include "headrace/quarantine.h"

namespace headrace::feed {

/// A sample by its block.
struct SamplePlace {
  std::uint32_t block = 0;
  std::uint32_t index = 0;
  bool operator==(const SamplePlace&) const = default;
};

/// Step of the walk over `count` candidates: visits each once in `count` steps. \pre count > 0.
std::uint64_t stand_in_step(std::uint64_t count) noexcept;

class StandIns {
 public:
  struct Options {
    bool replaces_found = false;                    ///< Also what turns out bad while reading.
    std::vector<SampleRange> quarantine = {};       ///< Sorted and joined.
    std::vector<std::uint32_t> source_blocks = {};  ///< LoaderOptions::source_blocks.
  };
  StandIns(const Dataset& dataset, Options options);

  bool replaces_found() const noexcept { return options_.replaces_found; }
  /// False: nothing is ever replaced.
  bool is_active() const noexcept {
    return options_.replaces_found || !options_.quarantine.empty();
  }
  bool is_bad(const SamplePlace& place) const;
  bool is_block_bad(std::uint32_t block) const;
  /// `planned`, or what is delivered in its place as far as is known. Errors: kCorrupt when all
  /// candidates are bad.
  Result<SamplePlace> find(const SamplePlace& planned) const;
  /// The same; `planned` itself when all candidates are bad.
  SamplePlace find_or_same(const SamplePlace& planned) const;

  /// Takes in that cutting a sample, or making a block ready, gave `status`. OK: it is replaced
  /// from now on. Errors: `status` when it is no reason to replace; kCorrupt when too many were
  /// found.
  Status take_bad_sample(const SamplePlace& place, Status status);
  Status take_bad_block(std::uint32_t block, Status status);

  std::vector<BadSample> report() const HEADRACE_EXCLUDES(mutex_);
  /// Entries found, those beyond the end of the report included.
  std::uint64_t found_count() const HEADRACE_EXCLUDES(mutex_);

 private:
  std::uint64_t position_of(const SamplePlace& place) const;
  /// The quarantined range that holds the position, or nullptr.
  const SampleRange* quarantined(std::uint64_t position) const;
  Status admit(const Status& status) const;
  void note(std::uint64_t position, std::uint64_t sample_count, const Status& status);

  const Dataset& dataset_;
  const Options options_;
  std::unordered_set<std::uint64_t> bad_samples_;  ///< Found, by position.
  std::unordered_set<std::uint32_t> bad_blocks_;   ///< Found.

  mutable Mutex mutex_;
  std::vector<BadSample> report_ HEADRACE_GUARDED_BY(mutex_);
  std::uint64_t found_count_ HEADRACE_GUARDED_BY(mutex_) = 0;
};

/// 16 hex digits over the ranges; "" when there are none.
std::string quarantine_digest(std::span<const SampleRange> ranges);

}  // namespace headrace::feed
