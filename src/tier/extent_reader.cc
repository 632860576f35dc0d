#include "tier/extent_reader.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <vector>

#include "base/errno_status.h"
#include "tier/extent_file.h"
#include "tier/file_time.h"

namespace headrace::tier {

Tier::Found ExtentReader::read(const ExtentName& range, std::span<std::byte> out,
                               std::uint64_t& object_size_bytes) {
  const std::vector<ExtentName> extents = directory_.index().cover(range);
  if (extents.empty()) return Tier::Found::kNothing;
  if (range.length_bytes >= Pace::kLeastBytes && pace_.prefers_store(directory_.clock().now())) {
    passed_bytes_.add(range.length_bytes);
    return Tier::Found::kTooSlow;
  }
  std::uint64_t at = range.offset_bytes;
  for (const ExtentName& extent : extents) {
    const std::uint64_t from = at - extent.offset_bytes;
    const auto part = out.first(std::min<std::size_t>(extent.length_bytes - from, out.size()));
    if (!read_one(extent, from, part, object_size_bytes)) return Tier::Found::kNothing;
    out = out.subspan(part.size());
    at += part.size();
  }
  hits_.add();
  hit_bytes_.add(range.length_bytes);
  return Tier::Found::kAll;
}

bool ExtentReader::read_one(const ExtentName& extent, std::uint64_t from_bytes,
                            std::span<std::byte> out, std::uint64_t& object_size_bytes) {
  const Fd file = directory_.open_extent(extent);
  if (!file) {
    const int error = errno;
    directory_.index().remove(extent);
    if (error != ENOENT)
      directory_.note_failure(errno_status(error, "cache: opening " + extent_path(extent)));
    return false;
  }
  const Status status =
      read_extent(file.get(), extent, from_bytes, out, object_size_bytes, directory_.key());
  if (status.ok()) {
    if (directory_.index().note_hit(extent) || !is_marked(file.get())) mark_hit(extent);
    return true;
  }
  if (status.code() == Code::kCorrupt) {
    corrupt_.add();
  } else {
    directory_.note_failure(status);
  }
  // What cannot be read goes as well: another file lies on other blocks of the disk.
  directory_.drop_extent(extent);
  return false;
}

/// Whether the file's times say that it was read again. Another process may have put it anew since
/// this one has said so.
bool ExtentReader::is_marked(int file) noexcept {
  struct stat info {};
  return ::fstat(file, &info) != 0 || nanoseconds(info.st_mtim) != 0;
}

/// A file's times say when it came (access) and when it was first read again by some process
/// (change; 0: never), which is what eviction asks where nobody knows the future.
void ExtentReader::mark_hit(const ExtentName& extent) const {
  const std::string path = extent_path(extent);
  timespec times[2]{};
  // Both to now is what others than the file's owner may do, too; of what was read again the access
  // is asked no more.
  times[0].tv_nsec = UTIME_NOW;
  times[1].tv_nsec = UTIME_NOW;
  ::utimensat(directory_.root(), path.c_str(), times, AT_SYMLINK_NOFOLLOW);
}

void ExtentReader::append_metrics(MetricList& out) const {
  append_counter(out, "cache.hits", "reads", hits_.value());
  append_counter(out, "cache.hit_bytes", "bytes", hit_bytes_.value());
  append_counter(out, "cache.passed_bytes", "bytes", passed_bytes_.value());
  append_counter(out, "cache.corrupt", "extents", corrupt_.value());
}

}  // namespace headrace::tier
