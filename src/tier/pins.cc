// The directory is read again when its time has changed, or was so recent that a change might not
// show in it. What is known of objects holds as long as the pins are the same.
#include "tier/pins.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <memory>
#include <span>
#include <utility>

#include "base/atomic_file.h"
#include "base/errno_status.h"
#include "base/fd.h"
#include "base/read_at.h"
#include "tier/extent_file.h"
#include "tier/file_time.h"
#include "tier/folder.h"

namespace headrace::tier {
namespace {

constexpr const char* kFolder = "pins";
/// What a header has room for at most.
constexpr std::size_t kLongest = 4000;
/// Coarser than any clock of a file system in use.
constexpr std::int64_t kTickNs = 50'000'000;

struct CloseDirectory {
  void operator()(DIR* directory) const noexcept { ::closedir(directory); }
};

std::string name_of(std::string_view url_prefix) {
  const ObjectId id = object_id({}, url_prefix, {});
  std::array<char, 40> text{};
  std::snprintf(text.data(), text.size(), "%016llx%016llx",
                static_cast<unsigned long long>(id.high), static_cast<unsigned long long>(id.low));
  return text.data();
}

Result<std::string> read_text(int directory, const char* name) {
  const Fd file(::openat(directory, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (!file) return errno_status(errno, "cache: reading a pin");
  std::string text(kLongest, '\0');
  const std::int64_t count = read_at(file.get(), 0, std::as_writable_bytes(std::span(text)));
  if (count < 0) return errno_status(static_cast<int>(-count), "cache: reading a pin");
  text.resize(static_cast<std::size_t>(count));
  return text;
}

}  // namespace

Status Pins::add(const std::string& url_prefix) {
  if (url_prefix.empty())
    return Status(Code::kInvalidArgument, "cache: a pin names the beginning of a URL");
  if (url_prefix.size() > kLongest)
    return Status(Code::kInvalidArgument, "cache: a pin has at most " + std::to_string(kLongest) +
                                              " bytes, not " + std::to_string(url_prefix.size()));
  HEADRACE_TRY_ASSIGN(const Fd folder, open_folder(root_, kFolder, true));
  remove_stale_temporaries(folder_);
  HEADRACE_TRY_ASSIGN(TemporaryFile file, TemporaryFile::create(folder_));
  if (::fchmod(file.fd(), file_mode(access_of(folder.get()))) != 0)
    return errno_status(errno, "cache: writing a pin");
  HEADRACE_TRY(file.write(std::as_bytes(std::span(url_prefix))));
  return file.publish(folder_ + "/" + name_of(url_prefix));
}

Result<bool> Pins::remove(const std::string& url_prefix) {
  const std::string path = std::string(kFolder) + "/" + name_of(url_prefix);
  if (::unlinkat(root_, path.c_str(), 0) == 0) return true;
  if (errno == ENOENT) return false;
  return errno_status(errno, "cache: removing a pin");
}

Status Pins::read() {
  struct stat info {};
  if (::fstatat(root_, kFolder, &info, AT_SYMLINK_NOFOLLOW) != 0) {
    if (errno != ENOENT) return errno_status(errno, "cache: looking at the pins");
    if (!prefixes_.empty()) known_.clear();
    prefixes_.clear();
    is_sure_ = false;
    return {};
  }
  if (is_sure_ && nanoseconds(info.st_mtim) == nanoseconds(changed_)) return {};
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  Fd fd(::openat(root_, kFolder, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  const std::unique_ptr<DIR, CloseDirectory> directory(fd ? ::fdopendir(fd.get()) : nullptr);
  if (!directory) return errno_status(errno, "cache: reading the pins");
  const int descriptor = fd.release();
  std::vector<std::string> found;
  while (const dirent* const entry = ::readdir(directory.get())) {
    if (entry->d_name[0] == '.') continue;
    auto text = read_text(descriptor, entry->d_name);
    if (!text && text.error().code() == Code::kNotFound) continue;  // Just removed.
    if (!text) return std::move(text).error();
    // One that is not what its name says was damaged: it pins nothing.
    if (name_of(*text) == entry->d_name) found.push_back(*std::move(text));
  }
  std::sort(found.begin(), found.end());
  if (found != prefixes_) known_.clear();
  prefixes_ = std::move(found);
  changed_ = info.st_mtim;
  is_sure_ = nanoseconds(now) - nanoseconds(info.st_mtim) > kTickNs;
  return {};
}

Result<std::vector<std::string>> Pins::list() {
  MutexLock lock(mutex_);
  HEADRACE_TRY(read());
  return prefixes_;
}

bool Pins::look() {
  MutexLock lock(mutex_);
  // Pins that cannot be read now are still those that were.
  static_cast<void>(read());
  return !prefixes_.empty();
}

bool Pins::matches(std::string_view url) const {
  return std::any_of(prefixes_.begin(), prefixes_.end(),
                     [&](const std::string& prefix) { return url.starts_with(prefix); });
}

bool Pins::covers(std::string_view url) {
  MutexLock lock(mutex_);
  return matches(url);
}

bool Pins::covers(const ExtentName& extent) {
  MutexLock lock(mutex_);
  if (prefixes_.empty()) return false;
  if (const auto known = known_.find(extent.object); known != known_.end()) return known->second;
  const std::string path = bucket_name(bucket_of(extent.object)) + "/" + file_name(extent);
  const Fd file(::openat(root_, path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (!file) return false;
  auto info = read_info(file.get(), &extent);
  if (!info) return false;
  return known_[extent.object] = matches(info->url);
}

}  // namespace headrace::tier
