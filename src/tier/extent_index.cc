// Extents of an object hardly ever overlap (two readers that cut it differently), so a range's
// cover is found by a search for its beginning and a walk.
#include "tier/extent_index.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <iterator>
#include <string_view>

#include "base/errno_status.h"
#include "headrace/clock.h"
#include "tier/extent_file.h"
#include "tier/file_time.h"
#include "tier/folder.h"
#include "tier/new_extent.h"

namespace headrace::tier {
namespace {

/// Extents that begin before a byte and may still hold it: how many are looked at.
constexpr int kMostOverlapping = 8;
/// Coarser than any clock of a file system in use.
constexpr std::chrono::milliseconds kTick{50};

std::uint64_t end_of(const ExtentName& extent) noexcept {
  return extent.offset_bytes + extent.length_bytes;
}

}  // namespace

ExtentIndex::ExtentIndex(int root)
    : root_(root), buckets_(std::make_unique<Bucket[]>(kBucketCount)) {}

Result<Fd> ExtentIndex::open_bucket(std::uint32_t bucket, bool make) const {
  return open_folder(root_, bucket_name(bucket), make);
}

void ExtentIndex::find_cover(const Bucket& bucket, const ExtentName& range,
                             std::vector<ExtentName>& out) {
  out.clear();
  std::uint64_t at = range.offset_bytes;
  while (at < end_of(range)) {
    // Of those that begin at or before `at`, the one that reaches farthest.
    auto next = bucket.extents.upper_bound({range.object, at, UINT64_MAX});
    const ExtentName* best = nullptr;
    for (int i = 0; i < kMostOverlapping && next != bucket.extents.begin(); ++i) {
      --next;
      if (next->object != range.object) break;
      if (end_of(*next) > at && (best == nullptr || end_of(*next) > end_of(*best))) best = &*next;
    }
    if (best == nullptr) {
      out.clear();
      return;
    }
    out.push_back(*best);
    at = end_of(*best);
  }
}

std::vector<ExtentName> ExtentIndex::cover(const ExtentName& range) {
  const std::uint32_t index = bucket_of(range.object);
  Bucket& bucket = buckets_[index];
  std::vector<ExtentName> found;
  MutexLock lock(bucket.mutex);
  if (bucket.is_read) find_cover(bucket, range, found);
  if (!found.empty()) return found;
  const auto is_new = refresh(index, bucket);
  if (is_new && *is_new) find_cover(bucket, range, found);
  return found;
}

std::vector<ExtentName> ExtentIndex::overlapping(const ExtentName& range) {
  Bucket& bucket = buckets_[bucket_of(range.object)];
  std::vector<ExtentName> found;
  MutexLock lock(bucket.mutex);
  auto at = bucket.extents.lower_bound({range.object, 0, 0});
  for (; at != bucket.extents.end() && at->object == range.object; ++at) {
    if (at->offset_bytes >= end_of(range)) break;
    if (end_of(*at) > range.offset_bytes) found.push_back(*at);
  }
  return found;
}

void ExtentIndex::add(const ExtentName& extent) {
  Bucket& bucket = buckets_[bucket_of(extent.object)];
  MutexLock lock(bucket.mutex);
  bucket.extents.insert(extent);
}

void ExtentIndex::remove(const ExtentName& extent) {
  Bucket& bucket = buckets_[bucket_of(extent.object)];
  MutexLock lock(bucket.mutex);
  bucket.extents.erase(extent);
  bucket.hit.erase(extent);
}

bool ExtentIndex::note_hit(const ExtentName& extent) {
  Bucket& bucket = buckets_[bucket_of(extent.object)];
  MutexLock lock(bucket.mutex);
  return bucket.hit.insert(extent).second;
}

Result<bool> ExtentIndex::refresh(std::uint32_t index, Bucket& bucket) {
  struct stat info {};
  const std::string name = bucket_name(index);
  if (::fstatat(root_, name.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0) {
    if (errno != ENOENT) return errno_status(errno, "looking at a directory of the cache");
    const bool had_any = !bucket.extents.empty();
    bucket.extents.clear();
    bucket.hit.clear();
    return had_any;
  }
  if (bucket.is_read && bucket.is_sure && nanoseconds(info.st_mtim) == nanoseconds(bucket.changed))
    return false;
  // The file system's clock may be another machine's, and any clock may jump.
  const TimePoint now = system_clock().now();
  if (!bucket.is_read || nanoseconds(info.st_mtim) != nanoseconds(bucket.changed))
    bucket.unchanged_since = now;
  HEADRACE_TRY_ASSIGN(Fd fd, open_bucket(index, false));
  std::set<ExtentName> extents;
  bool has_unfinished = false;  // Whose death changes no time of the directory.
  HEADRACE_TRY(visit_names(fd.get(), [&](const char* file) {
    if (const auto extent = parse_file_name(file)) extents.insert(*extent);
    if (std::string_view(file).starts_with(kUnfinished) && !remove_if_dead(fd.get(), file))
      has_unfinished = true;
  }));
  bucket.extents = std::move(extents);
  for (auto at = bucket.hit.begin(); at != bucket.hit.end();)
    at = bucket.extents.contains(*at) ? std::next(at) : bucket.hit.erase(at);
  bucket.changed = info.st_mtim;
  bucket.is_sure = !has_unfinished && now - bucket.unchanged_since > kTick;
  bucket.is_read = true;
  return true;
}

Result<std::vector<std::uint32_t>> ExtentIndex::existing_buckets() const {
  std::vector<std::uint32_t> found;
  HEADRACE_TRY(visit_names(root_, [&](std::string_view name) {
    if (const auto bucket = parse_bucket_name(name)) found.push_back(*bucket);
  }));
  return found;
}

Result<std::vector<ExtentName>> ExtentIndex::extents_of(std::uint32_t bucket) {
  Bucket& found = buckets_[bucket];
  MutexLock lock(found.mutex);
  auto refreshed = refresh(bucket, found);
  if (!refreshed) return std::move(refreshed).error();
  return std::vector<ExtentName>(found.extents.begin(), found.extents.end());
}

Status ExtentIndex::visit(const std::function<void(const ExtentName&)>& visit) {
  auto next = visit_some(0, SIZE_MAX, visit);
  return next ? Status() : std::move(next).error();
}

Result<std::optional<std::uint32_t>> ExtentIndex::visit_some(
    std::uint32_t bucket, std::size_t enough, const std::function<void(const ExtentName&)>& visit) {
  HEADRACE_TRY_ASSIGN(auto existing, existing_buckets());
  std::sort(existing.begin(), existing.end());
  std::rotate(existing.begin(), std::lower_bound(existing.begin(), existing.end(), bucket),
              existing.end());
  std::size_t seen = 0;
  for (const std::uint32_t i : existing) {
    if (seen >= enough) return std::optional(i);
    HEADRACE_TRY_ASSIGN(const auto extents, extents_of(i));
    for (const ExtentName& extent : extents) visit(extent);
    seen += extents.size();
  }
  return std::optional<std::uint32_t>();
}

}  // namespace headrace::tier
