#pragma once
/// \file
/// When readers need extents next, for whoever evicts: each reader that knows its order publishes a
/// plan in the cache's directory.
///
/// A plan is one file: a page with "HRPLAN01" and the number of entries (u64), then entries sorted
/// by object and offset, several of one range where it is needed more than twice. Its reader holds
/// a lock on it while it lives, and marks in it what it has read.
///
/// Threads: one owner.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "headrace/status.h"
#include "tier/extent_name.h"
#include "tier/file_locks.h"
#include "tier/plan_entries.h"

namespace headrace::tier {

/// The plan of a reader in this process. It goes with the object, or with the process.
class OwnPlan {
 public:
  /// `directory`: open, outlives it. Errors: those of writing.
  static Result<std::shared_ptr<OwnPlan>> publish(int directory, std::vector<PlanEntry> entries);
  ~OwnPlan();
  OwnPlan(const OwnPlan&) = delete;
  OwnPlan& operator=(const OwnPlan&) = delete;

  /// Bytes of `range` are being read: the entries that begin in it are needed at their next time.
  void note_read(const ExtentName& range) noexcept;

 private:
  OwnPlan(int directory, std::string name, FileLocks lock, std::vector<PlanEntry> entries);
  const int directory_;
  const std::string name_;
  const FileLocks lock_;
  std::vector<PlanEntry> entries_;
};

/// All plans of living readers, as they were at the last look().
class PlanBoard {
 public:
  /// Reads the plans, and deletes those of the dead.
  void look(int directory);
  bool is_empty() const noexcept { return plans_.empty(); }
  /// Batches until some reader needs a byte of the extent; kNever: none does again. None: it is in
  /// nobody's plan.
  std::optional<std::uint32_t> next_need(const ExtentName& extent) const noexcept;

 private:
  std::vector<std::vector<PlanEntry>> plans_;
};

}  // namespace headrace::tier
