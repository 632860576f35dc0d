#include "sim/storage.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <ctime>
#include <filesystem>

#include "base/random.h"
#include "base/strings.h"
#include "http/fields.h"
#include "sim/key_path.h"

namespace headrace::sim {
namespace {

// Holds the part count, so that the ETag of a multipart object keeps its "-N". Where the file
// system has no user attributes the ETag is that of a plain object.
constexpr char kPartsAttribute[] = "user.headrace.parts";

std::string strip_etag(std::string_view etag) {
  if (etag.substr(0, 2) == "W/") etag.remove_prefix(2);
  if (etag.size() >= 2 && etag.front() == '"' && etag.back() == '"') {
    etag = etag.substr(1, etag.size() - 2);
  }
  return std::string(etag);
}

bool is_blocked(int error) noexcept {
  return error == EISDIR || error == ENOTDIR || error == EEXIST || error == ENOTEMPTY;
}

bool rename_into(const std::string& from, const std::string& to) {
  if (::rename(from.c_str(), to.c_str()) == 0) return true;
  if (errno != ENOENT) return false;
  return make_parent_folders(to) && ::rename(from.c_str(), to.c_str()) == 0;
}

/// Removes empty folders from that of `path` up to, not including, `top`.
void prune(std::string path, std::string_view top) {
  while (true) {
    path.resize(path.rfind('/'));
    if (path.size() <= top.size() || ::rmdir(path.c_str()) != 0) return;
  }
}

/// True when nothing below `path` could be listed; hidden names do not count.
bool is_empty_tree(const std::string& path) {
  std::error_code error;
  std::filesystem::directory_iterator walk(path, error);
  for (; !error && walk != std::filesystem::directory_iterator(); walk.increment(error)) {
    const std::string name = walk->path().filename();
    if (name.front() == '.') continue;
    std::error_code ignored;
    if (!walk->is_directory(ignored) || !is_empty_tree(walk->path())) return false;
  }
  return true;
}

bool has_files(const std::string& path) {
  std::error_code error;
  std::filesystem::recursive_directory_iterator walk(path, error);
  for (; !error && walk != std::filesystem::recursive_directory_iterator(); walk.increment(error)) {
    std::error_code ignored;
    if (walk->is_regular_file(ignored)) return true;
  }
  return false;
}

}  // namespace

TemporaryFile& TemporaryFile::operator=(TemporaryFile&& other) noexcept {
  if (this != &other) {
    discard();
    fd_ = std::move(other.fd_);
    path_ = std::exchange(other.path_, {});
  }
  return *this;
}

void TemporaryFile::discard() noexcept {
  if (!path_.empty()) ::unlink(path_.c_str());
  path_.clear();
  fd_ = Fd();
}

FileInfo info_of(const struct stat& st) noexcept {
  FileInfo info;
  info.size_bytes = static_cast<std::uint64_t>(st.st_size);
  info.modified_ns = st.st_mtim.tv_sec * 1'000'000'000LL + st.st_mtim.tv_nsec;
  info.inode = st.st_ino;
  return info;
}

std::uint32_t part_count_of(int fd) noexcept {
  char text[12] = {};
  if (::fgetxattr(fd, kPartsAttribute, text, sizeof text - 1) <= 0) return 0;
  return static_cast<std::uint32_t>(parse_decimal<std::uint64_t>(text).value_or(0));
}

bool stat_object(const std::string& path, FileInfo& out) {
  struct stat st;
  if (::stat(path.c_str(), &st) != 0 || !S_ISREG(st.st_mode)) return false;
  out = info_of(st);
  char text[12] = {};
  if (::getxattr(path.c_str(), kPartsAttribute, text, sizeof text - 1) > 0) {
    out.part_count = static_cast<std::uint32_t>(parse_decimal<std::uint64_t>(text).value_or(0));
  }
  return true;
}

std::string etag_of(const FileInfo& info) {
  const std::uint64_t a =
      mix64(static_cast<std::uint64_t>(info.modified_ns) + 0x9e3779b97f4a7c15ULL);
  const std::uint64_t high = mix64(a ^ mix64(info.size_bytes + 1));
  const std::uint64_t low = mix64(high + mix64(info.inode + 0xbf58476d1ce4e5b9ULL));
  constexpr char kHex[] = "0123456789abcdef";
  std::string out(1, '"');
  for (std::uint64_t word : {high, low}) {
    for (int shift = 60; shift >= 0; shift -= 4) out += kHex[(word >> shift) & 15];
  }
  if (info.part_count > 0) out += '-' + std::to_string(info.part_count);
  out += '"';
  return out;
}

bool etag_matches(std::string_view list, std::string_view etag) noexcept {
  const std::string wanted = strip_etag(etag);
  while (!list.empty()) {
    const std::size_t comma = std::min(list.find(','), list.size());
    const std::string_view item = trim(list.substr(0, comma));
    if (item == "*" || strip_etag(item) == wanted) return true;
    list.remove_prefix(std::min(comma + 1, list.size()));
  }
  return false;
}

bool make_parent_folders(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  if (slash == std::string::npos || slash == 0) return true;
  const std::string parent = path.substr(0, slash);
  if (::mkdir(parent.c_str(), 0777) == 0) return true;
  if (errno == EEXIST) {
    struct stat st;
    if (::stat(parent.c_str(), &st) == 0 && S_ISDIR(st.st_mode)) return true;
    errno = ENOTDIR;
    return false;
  }
  if (errno != ENOENT) return false;
  return make_parent_folders(parent) && (::mkdir(parent.c_str(), 0777) == 0 || errno == EEXIST);
}

bool append_file_range(int from, std::uint64_t offset, std::uint64_t length, int to) {
  auto position = static_cast<off_t>(offset);
  while (length > 0) {
    const std::size_t step = static_cast<std::size_t>(std::min<std::uint64_t>(length, 1 << 30));
    const ssize_t moved = ::copy_file_range(from, &position, to, nullptr, step, 0);
    if (moved <= 0) {
      if (moved == 0) errno = EIO;  // shorter than it was
      return false;
    }
    length -= static_cast<std::uint64_t>(moved);
  }
  return true;
}

std::string Storage::bucket_path(std::string_view bucket) const {
  std::string path;
  path.reserve(root_.size() + bucket.size() + 64);
  path += root_;
  path += '/';
  path += bucket;
  return path;
}

std::string Storage::natural_path(std::string_view bucket, std::string_view key) const {
  std::string path = bucket_path(bucket);
  path += '/';
  path += key;
  return path;
}

std::string Storage::hidden_path(std::string_view bucket, std::string_view rest) const {
  std::string path = natural_path(bucket, kHiddenFolder);
  path += '/';
  path += rest;
  return path;
}

bool Storage::bucket_exists(std::string_view bucket) const {
  struct stat st;
  return is_bucket_name(bucket) && ::stat(bucket_path(bucket).c_str(), &st) == 0 &&
         S_ISDIR(st.st_mode);
}

std::vector<BucketInfo> Storage::list_buckets() const {
  std::vector<BucketInfo> buckets;
  std::error_code error;
  std::filesystem::directory_iterator walk(root_, error);
  for (; !error && walk != std::filesystem::directory_iterator(); walk.increment(error)) {
    const std::string name = walk->path().filename();
    struct stat st;
    if (!is_bucket_name(name) || ::stat(walk->path().c_str(), &st) != 0 || !S_ISDIR(st.st_mode)) {
      continue;
    }
    buckets.push_back({name, st.st_mtim.tv_sec});
  }
  std::sort(buckets.begin(), buckets.end(),
            [](const BucketInfo& a, const BucketInfo& b) { return a.name < b.name; });
  return buckets;
}

S3Code Storage::create_bucket(std::string_view bucket) {
  if (!is_bucket_name(bucket)) return S3Code::kInvalidBucketName;
  if (::mkdir(bucket_path(bucket).c_str(), 0777) == 0) return S3Code::kNone;
  return errno == EEXIST ? S3Code::kBucketAlreadyOwnedByYou : S3Code::kInternalError;
}

S3Code Storage::delete_bucket(std::string_view bucket) {
  if (!bucket_exists(bucket)) return S3Code::kNoSuchBucket;
  const MutexLock lock(commit_mutex_);
  if (!is_empty_tree(bucket_path(bucket)) || has_files(hidden_path(bucket, "keys"))) {
    return S3Code::kBucketNotEmpty;
  }
  std::error_code error;
  // The first removes what the simulator made; the second refuses when the user's hidden files lie
  // there.
  std::filesystem::remove_all(natural_path(bucket, kHiddenFolder), error);
  if (::rmdir(bucket_path(bucket).c_str()) == 0) return S3Code::kNone;
  return errno == ENOTEMPTY ? S3Code::kBucketNotEmpty : S3Code::kInternalError;
}

std::optional<std::string> Storage::find(std::string_view bucket, std::string_view key,
                                         FileInfo& info) const {
  if (!is_bucket_name(bucket) || key.empty()) return std::nullopt;
  if (is_path_key(key)) {
    std::string path = natural_path(bucket, key);
    if (stat_object(path, info)) return path;
  }
  std::string path = hidden_path(bucket, "keys/" + escaped_key_path(key));
  if (stat_object(path, info)) return path;
  return std::nullopt;
}

S3Code Storage::create_temporary(std::string_view bucket, TemporaryFile& out) {
  if (!bucket_exists(bucket)) return S3Code::kNoSuchBucket;
  std::string path = hidden_path(bucket, "tmp/XXXXXX");
  for (int attempt = 0; attempt < 2; ++attempt) {
    const int fd = ::mkostemp(path.data(), O_CLOEXEC);
    if (fd >= 0) {
      ::fchmod(fd, 0644);
      out = TemporaryFile(Fd(fd), std::move(path));
      return S3Code::kNone;
    }
    path = hidden_path(bucket, "tmp/XXXXXX");
    if (errno != ENOENT || !make_parent_folders(path)) break;
  }
  return S3Code::kInternalError;
}

S3Code Storage::check(std::string_view bucket, std::string_view key,
                      const WriteCondition& condition) const {
  if (!condition.if_absent && condition.if_match.empty() && !condition.if_generation) {
    return S3Code::kNone;
  }
  FileInfo present;
  const bool exists = find(bucket, key, present).has_value();
  if (condition.if_absent && exists) return S3Code::kPreconditionFailed;
  if (condition.if_generation &&
      (!exists || *condition.if_generation != static_cast<std::uint64_t>(present.modified_ns))) {
    return S3Code::kPreconditionFailed;
  }
  if (condition.if_match.empty()) return S3Code::kNone;
  if (!exists) return S3Code::kNoSuchKey;
  return etag_matches(condition.if_match, etag_of(present)) ? S3Code::kNone
                                                            : S3Code::kPreconditionFailed;
}

void Storage::stamp(int fd) {
  timespec now;
  ::clock_gettime(CLOCK_REALTIME, &now);
  last_stamp_ns_ =
      std::max<std::int64_t>(last_stamp_ns_ + 1, now.tv_sec * 1'000'000'000LL + now.tv_nsec);
  const timespec times[2] = {{0, UTIME_OMIT},
                             {last_stamp_ns_ / 1'000'000'000, last_stamp_ns_ % 1'000'000'000}};
  ::futimens(fd, times);
}

S3Code Storage::commit(TemporaryFile file, std::string_view bucket, std::string_view key,
                       const WriteCondition& condition, std::uint32_t part_count, FileInfo& out) {
  if (part_count > 0) {
    const std::string text = std::to_string(part_count);
    if (::fsetxattr(file.fd(), kPartsAttribute, text.data(), text.size(), 0) != 0) part_count = 0;
  }
  const MutexLock lock(commit_mutex_);
  if (const S3Code code = check(bucket, key, condition); code != S3Code::kNone) return code;
  stamp(file.fd());
  struct stat st;
  if (::fstat(file.fd(), &st) != 0) return S3Code::kInternalError;
  out = info_of(st);
  out.part_count = part_count;

  const std::string escaped = hidden_path(bucket, "keys/" + escaped_key_path(key));
  if (is_path_key(key)) {
    if (rename_into(file.path(), natural_path(bucket, key))) {
      file.release();
      if (::unlink(escaped.c_str()) == 0) prune(escaped, hidden_path(bucket, "keys"));
      return S3Code::kNone;
    }
    if (!is_blocked(errno)) return S3Code::kInternalError;
  }
  if (!rename_into(file.path(), escaped)) return S3Code::kInternalError;
  file.release();
  return S3Code::kNone;
}

void Storage::remove_stale_temporaries() {
  // Another simulator may be writing here right now: its files are young.
  constexpr std::int64_t kStaleSeconds = 60;
  timespec now;
  ::clock_gettime(CLOCK_REALTIME, &now);
  for (const BucketInfo& bucket : list_buckets()) {
    std::error_code error;
    std::filesystem::directory_iterator walk(hidden_path(bucket.name, "tmp"), error);
    for (; !error && walk != std::filesystem::directory_iterator(); walk.increment(error)) {
      struct stat st;
      const std::string path = walk->path();
      if (::lstat(path.c_str(), &st) == 0 && S_ISREG(st.st_mode) &&
          st.st_mtim.tv_sec + kStaleSeconds < now.tv_sec) {
        ::unlink(path.c_str());
      }
    }
  }
}

bool Storage::touch(std::string_view bucket, std::string_view key) {
  const MutexLock lock(commit_mutex_);
  FileInfo info;
  const auto path = find(bucket, key, info);
  const Fd fd(path ? ::open(path->c_str(), O_WRONLY | O_CLOEXEC) : -1);
  if (!fd) return false;
  stamp(fd.get());
  return true;
}

S3Code Storage::remove(std::string_view bucket, std::string_view key) {
  if (!bucket_exists(bucket)) return S3Code::kNoSuchBucket;
  const MutexLock lock(commit_mutex_);
  if (is_path_key(key)) {
    const std::string path = natural_path(bucket, key);
    if (::unlink(path.c_str()) == 0) {
      prune(path, bucket_path(bucket));
    } else if (errno != ENOENT && errno != EISDIR && errno != ENOTDIR && errno != EPERM) {
      return S3Code::kInternalError;
    }
  }
  const std::string escaped = hidden_path(bucket, "keys/" + escaped_key_path(key));
  if (::unlink(escaped.c_str()) == 0) prune(escaped, hidden_path(bucket, "keys"));
  return S3Code::kNone;
}

}  // namespace headrace::sim
