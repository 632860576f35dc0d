// Where a key lies: in its natural file "root/bucket/key" where the key can be a path and nothing
// is in the way, else in the hidden folder under an escaped name.
//
// Invariants:
// - After a commit a key lies in one of the two places only: a natural file removes the escaped
//   one. The escaped one is written for a path key only where the natural path is blocked by a
//   folder or by a file in a folder's place; find() looks at the natural place first.
// - Bytes appear and change by rename() alone (touch() changes times). Readers take no lock and see
//   one version or another, never a mixture.
// - Everything that checks a condition holds commit_mutex_ from the check to the rename or unlink.
//   Without it two conditional writes could both pass.
// - Commit: condition, time stamp, seal (which contains the stamp), rename. The seal comes after
//   the stamp because it is about it, and before the rename because nobody may see a version
//   without it.
// - Nothing is trusted that others may have changed: a seal counts only with the size and time
//   that the file has now.
#include "sim/storage.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <span>

#include "base/list_item.h"
#include "base/random.h"
#include "base/strings.h"
#include "http/fields.h"
#include "sim/key_path.h"

namespace headrace::sim {
namespace {

// "MD5 in hex or -", part count, time of change in ns, size, storage class. It speaks of the bytes
// only while time and size are the file's: whoever else writes the file breaks the seal.
constexpr char kSealAttribute[] = "user.headrace.seal";
constexpr std::size_t kMaxSealBytes = 128;

std::string_view next_word(std::string_view& text) {
  const std::size_t space = std::min(text.find(' '), text.size());
  const std::string_view word = text.substr(0, space);
  text.remove_prefix(std::min(space + 1, text.size()));
  return word;
}

std::optional<Md5Digest> digest_of(std::string_view hex) {
  Md5Digest digest;
  if (hex.size() != 2 * digest.size()) return std::nullopt;
  for (std::size_t i = 0; i < digest.size(); ++i) {
    const char* begin = hex.data() + 2 * i;
    const auto [end, error] = std::from_chars(begin, begin + 2, digest[i], 16);
    if (error != std::errc() || end != begin + 2) return std::nullopt;
  }
  return digest;
}

void apply_seal(std::string_view text, FileInfo& info) {
  VersionTag tag;
  tag.md5 = digest_of(next_word(text));
  const auto parts = parse_decimal<std::uint64_t>(next_word(text));
  const auto modified_ns = parse_decimal<std::uint64_t>(next_word(text));
  const auto size_bytes = parse_decimal<std::uint64_t>(next_word(text));
  const auto storage_class = storage_class_of(text);
  if (!parts || !storage_class || modified_ns != static_cast<std::uint64_t>(info.modified_ns) ||
      size_bytes != info.size_bytes) {
    return;
  }
  tag.part_count = static_cast<std::uint32_t>(*parts);
  tag.storage_class = *storage_class;
  info.tag = tag;
  info.is_sealed = true;
}

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

/// True when there is nothing but folders below `path`, the simulator's own aside: what is listed,
/// but the user's hidden files and links, too.
bool has_only_folders(const std::string& path) {
  std::error_code error;
  std::filesystem::recursive_directory_iterator walk(path, error);
  for (; !error && walk != std::filesystem::recursive_directory_iterator(); walk.increment(error)) {
    std::error_code ignored;
    if (walk->symlink_status(ignored).type() != std::filesystem::file_type::directory) return false;
    if (walk.depth() == 0 && walk->path().filename() == kHiddenFolder) {
      walk.disable_recursion_pending();
    }
  }
  return !error;
}

/// Removes the folders in `path`, which hold nothing but folders; what has come meanwhile stays.
void remove_folders(const std::string& path) {
  std::error_code error;
  std::filesystem::directory_iterator walk(path, error);
  for (; !error && walk != std::filesystem::directory_iterator(); walk.increment(error)) {
    if (walk->path().filename() == kHiddenFolder) continue;
    remove_folders(walk->path());
    ::rmdir(walk->path().c_str());
  }
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

void read_seal(int fd, FileInfo& info) noexcept {
  char text[kMaxSealBytes];
  const ssize_t count = ::fgetxattr(fd, kSealAttribute, text, sizeof text);
  if (count > 0) apply_seal({text, static_cast<std::size_t>(count)}, info);
}

void write_seal(int fd, FileInfo& info) noexcept {
  const std::string text =
      (info.tag.md5 ? to_hex(std::as_bytes(std::span(*info.tag.md5))) : "-") + " " +
      std::to_string(info.tag.part_count) + " " + std::to_string(info.modified_ns) + " " +
      std::to_string(info.size_bytes) + " " + std::string(name_of(info.tag.storage_class));
  info.is_sealed = ::fsetxattr(fd, kSealAttribute, text.data(), text.size(), 0) == 0;
  if (!info.is_sealed) info.tag = VersionTag();
}

bool stat_object(const std::string& path, FileInfo& out) {
  struct stat st;
  if (::stat(path.c_str(), &st) != 0 || !S_ISREG(st.st_mode)) return false;
  out = info_of(st);
  char text[kMaxSealBytes];
  const ssize_t count = ::getxattr(path.c_str(), kSealAttribute, text, sizeof text);
  if (count > 0) apply_seal({text, static_cast<std::size_t>(count)}, out);
  return true;
}

std::string etag_of(const FileInfo& info) {
  std::string out(1, '"');
  if (info.tag.md5) {
    out += to_hex(std::as_bytes(std::span(*info.tag.md5)));
    if (info.tag.part_count > 0) out += '-' + std::to_string(info.tag.part_count);
    return out + '"';
  }
  const std::uint64_t a =
      mix64(static_cast<std::uint64_t>(info.modified_ns) + 0x9e3779b97f4a7c15ULL);
  const std::uint64_t high = mix64(a ^ mix64(info.size_bytes + 1));
  const std::uint64_t low = mix64(high + mix64(info.inode + 0xbf58476d1ce4e5b9ULL));
  constexpr char kHex[] = "0123456789abcdef";
  for (std::uint64_t word : {high, low}) {
    for (int shift = 60; shift >= 0; shift -= 4) out += kHex[(word >> shift) & 15];
  }
  return out + "-1\"";
}

bool is_same_etag(std::string_view a, std::string_view b) { return strip_etag(a) == strip_etag(b); }

bool etag_matches(std::string_view list, std::string_view etag) noexcept {
  while (!list.empty()) {
    const std::string_view item = take_item(list);
    if (item == "*" || is_same_etag(item, etag)) return true;
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

bool write_all(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    bytes.remove_prefix(static_cast<std::size_t>(written));
  }
  return true;
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
  if (!has_only_folders(bucket_path(bucket)) || has_files(hidden_path(bucket, "keys"))) {
    return S3Code::kBucketNotEmpty;
  }
  remove_folders(bucket_path(bucket));
  std::error_code error;
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
  if (condition.if_none_match.empty() && condition.if_match.empty() && !condition.if_generation) {
    return S3Code::kNone;
  }
  FileInfo present;
  const bool exists = find(bucket, key, present).has_value();
  if (exists && etag_matches(condition.if_none_match, etag_of(present))) {
    return S3Code::kPreconditionFailed;
  }
  if (condition.if_generation &&
      (!exists || *condition.if_generation != static_cast<std::uint64_t>(present.modified_ns))) {
    return S3Code::kPreconditionFailed;
  }
  if (condition.if_match.empty()) return S3Code::kNone;
  if (!exists) return S3Code::kNoSuchKey;
  return etag_matches(condition.if_match, etag_of(present)) ? S3Code::kNone
                                                            : S3Code::kPreconditionFailed;
}

bool Storage::allows_removal(std::string_view bucket, std::string_view key,
                             const WriteCondition& condition) const {
  if (condition.if_match.empty() && !condition.if_modified_s && !condition.if_size_bytes) {
    return true;
  }
  FileInfo present;
  if (!find(bucket, key, present)) return true;
  if (!condition.if_match.empty() && !etag_matches(condition.if_match, etag_of(present))) {
    return false;
  }
  return condition.if_modified_s.value_or(present.modified_ns / 1'000'000'000) ==
             present.modified_ns / 1'000'000'000 &&
         condition.if_size_bytes.value_or(present.size_bytes) == present.size_bytes;
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
                       const WriteCondition& condition, const VersionTag& tag, FileInfo& out) {
  const MutexLock lock(commit_mutex_);
  if (const S3Code code = check(bucket, key, condition); code != S3Code::kNone) return code;
  stamp(file.fd());
  struct stat st;
  if (::fstat(file.fd(), &st) != 0) return S3Code::kInternalError;
  out = info_of(st);
  out.tag = tag;
  write_seal(file.fd(), out);
  // Lost would be the class, and with it what the object answers.
  if (out.tag.storage_class != tag.storage_class) return S3Code::kNotImplemented;

  const std::string escaped = hidden_path(bucket, "keys/" + escaped_key_path(key));
  if (is_path_key(key)) {
    if (rename_into(file.path(), natural_path(bucket, key))) {
      file.release();
      if (::unlink(escaped.c_str()) == 0) prune(escaped, hidden_path(bucket, "keys"));
      return S3Code::kNone;
    }
    // A folder has the key's name, or a file has the name of one of its folders: both keys may
    // exist in S3, so this one goes to the hidden folder.
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
  struct stat st;
  if (!fd) return false;
  stamp(fd.get());
  if (!info.is_sealed || ::fstat(fd.get(), &st) != 0) return true;
  // The bytes stay, and so does what is kept beside them, but not the ETag.
  info = info_of(st);
  write_seal(fd.get(), info);
  return true;
}

S3Code Storage::remove(std::string_view bucket, std::string_view key,
                       const WriteCondition& condition) {
  if (!bucket_exists(bucket)) return S3Code::kNoSuchBucket;
  const MutexLock lock(commit_mutex_);
  if (!allows_removal(bucket, key, condition)) return S3Code::kPreconditionFailed;
  if (is_path_key(key)) {
    const std::string path = natural_path(bucket, key);
    if (::unlink(path.c_str()) == 0) {
      prune(path, bucket_path(bucket));
      // EISDIR, and EPERM on some file systems: a folder, whose keys stay.
    } else if (errno != ENOENT && errno != EISDIR && errno != ENOTDIR && errno != EPERM) {
      return S3Code::kInternalError;
    }
  }
  const std::string escaped = hidden_path(bucket, "keys/" + escaped_key_path(key));
  if (::unlink(escaped.c_str()) == 0) prune(escaped, hidden_path(bucket, "keys"));
  return S3Code::kNone;
}

}  // namespace headrace::sim
