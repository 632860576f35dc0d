#pragma once
/// \file
/// ExtentIndex: which extents lie in a cache directory, as far as this process knows.
///
/// The file system is the index: a bucket is a directory that is read when something in it is asked
/// for first, and again when it has changed and something was not found. What is known may have
/// been deleted since: whoever opens the file finds out.
///
/// Threads: any.
#include <cstdint>
#include <ctime>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/fd.h"
#include "base/mutex.h"
#include "headrace/clock.h"
#include "headrace/status.h"
#include "tier/extent_name.h"

namespace headrace::tier {

class ExtentIndex {
 public:
  /// `root`: the directory with the buckets; stays open and outlives this.
  explicit ExtentIndex(int root);

  /// Extents that together hold all of the range, in order of their offsets; empty when there are
  /// none. Reads the bucket unless what was read of it is sure to be all.
  std::vector<ExtentName> cover(const ExtentName& range);
  /// Those that have a byte in common with the range. Does not read the bucket.
  std::vector<ExtentName> overlapping(const ExtentName& range);

  void add(const ExtentName& extent);
  void remove(const ExtentName& extent);
  /// True the first time that it is asked of an extent since that was added or found.
  bool note_hit(const ExtentName& extent);

  /// The directory of a bucket, made when it is missing. Errors: those of making it.
  Result<Fd> open_bucket(std::uint32_t bucket, bool make) const;
  /// Every extent, of buckets that have changed read anew. Errors: those of the directories.
  Status visit(const std::function<void(const ExtentName&)>& visit);
  /// The same of whole buckets from `bucket` on and around, until `enough` extents were seen. Which
  /// bucket is next; none: all of them were visited.
  Result<std::optional<std::uint32_t>> visit_some(
      std::uint32_t bucket, std::size_t enough,
      const std::function<void(const ExtentName&)>& visit);

 private:
  struct Bucket {
    Mutex mutex;
    bool is_read HEADRACE_GUARDED_BY(mutex) = false;
    /// Of the directory when it was read.
    timespec changed HEADRACE_GUARDED_BY(mutex){};
    /// When it was first seen to have changed then.
    TimePoint unchanged_since HEADRACE_GUARDED_BY(mutex){};
    /// Whether it had not changed for long when it was read: changes within one tick of the file
    /// system's clock do not show.
    bool is_sure HEADRACE_GUARDED_BY(mutex) = false;
    std::set<ExtentName> extents HEADRACE_GUARDED_BY(mutex);
    std::set<ExtentName> hit HEADRACE_GUARDED_BY(mutex);
  };

  static void find_cover(const Bucket& bucket, const ExtentName& range,
                         std::vector<ExtentName>& out) HEADRACE_REQUIRES(bucket.mutex);
  Result<std::vector<std::uint32_t>> existing_buckets() const;
  /// The extents of a bucket, which is read anew if it has changed.
  Result<std::vector<ExtentName>> extents_of(std::uint32_t bucket);
  /// False: it was read before and has not changed.
  Result<bool> refresh(std::uint32_t index, Bucket& bucket) HEADRACE_REQUIRES(bucket.mutex);

  const int root_;
  const std::unique_ptr<Bucket[]> buckets_;
};

}  // namespace headrace::tier
