#pragma once
/// \file
/// CacheDirectory: a cache's directory as this process has it open: which extents are in it
/// (index), how many bytes they take (ledger), under which key they are encrypted, and whether its
/// disk works. What reads, writes and evicts extents shares it.
///
/// Invariants:
/// - A file comes and goes inside a Ledger::Change, and is paid for before it comes.
/// - No failure of the directory reaches a reader: what cannot be read is fetched, what cannot be
///   written is not kept, and after a full or broken disk writing pauses.
/// - Nothing but files with names of extents, in buckets, is ever deleted.
///
/// Threads: any.
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "base/fd.h"
#include "headrace/cache.h"
#include "insight/counter.h"
#include "tier/extent_index.h"
#include "tier/ledger.h"

namespace headrace::tier {

class CacheDirectory {
 public:
  /// `root`: what has the buckets. Errors: kDenied (encrypted under another key, or opened for
  /// reads without one), kInvalidArgument (a key, and it is not encrypted), those of
  /// Ledger::open() and of the file system.
  static Result<std::unique_ptr<CacheDirectory>> open(const CacheOptions& options, Fd root);

  const std::string& path() const noexcept { return path_; }
  int root() const noexcept { return root_.get(); }
  /// Where OwnPlan and PlanBoard have plans.
  int plans() const noexcept { return plans_.get(); }
  Clock& clock() const noexcept { return clock_; }
  /// nullptr: it is not encrypted, or is only looked at.
  const SealKey* key() const noexcept { return key_.get(); }
  /// "": it is not encrypted.
  const std::string& key_id() const noexcept { return key_id_; }
  /// Errors: kDenied (encrypted, and opened without the key).
  Status check_readable() const;
  Ledger& ledger() const noexcept { return *ledger_; }
  ExtentIndex& index() noexcept { return index_; }

  /// An extent's file, to be read. Empty: errno says why.
  Fd open_extent(const ExtentName& extent) const;
  /// Deletes an extent. Whether a file went. Errors: those of deleting, which are noted.
  Result<bool> unlink_extent(const ExtentName& extent);
  /// Sees to it that an extent is not found again, even where it cannot be deleted.
  void drop_extent(const ExtentName& extent);

  /// Counts what failed, and where that may be the disk, says so and pauses writing.
  void note_failure(const Status& status);
  /// Whether it is no failure; takes note of one.
  bool is_done(const Status& status);
  /// Whether it has failed a moment ago: nothing is to be written.
  bool pauses_writing() const;

  void append_metrics(MetricList& out) const;

 private:
  CacheDirectory(const CacheOptions& options, Fd root, Fd plans);
  Status start(bool is_for_reads);

  const std::string path_;
  const std::shared_ptr<const SealKey> key_;
  Clock& clock_;
  const Fd root_, plans_;
  std::string key_id_;
  std::unique_ptr<Ledger> ledger_;
  ExtentIndex index_;
  std::atomic<std::int64_t> writes_off_until_ns_{0};
  Counter failures_;
};

}  // namespace headrace::tier
