#pragma once
/// \file
/// Objects in a directory: which file holds a key, atomic replacement, conditions, removal.
/// Blocking file system calls.
///
/// Threads: any. Writers are serialised at the moment of commit only, so that conditions hold.
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/fd.h"
#include "base/mutex.h"
#include "sim/s3_error.h"
#include "sim/storage_class.h"

struct stat;

namespace headrace::sim {

using Md5Digest = std::array<std::uint8_t, 16>;

/// What is known of a version when it is written.
struct VersionTag {
  std::optional<Md5Digest> md5;  ///< Of the bytes; of the parts' digests when there are parts.
  std::uint32_t part_count = 0;  ///< Of the multipart upload that made it; 0: a plain PUT.
  StorageClass storage_class = StorageClass::kStandard;
  bool operator==(const VersionTag&) const = default;
};

/// One version of an object, as its file tells it.
struct FileInfo {
  std::uint64_t size_bytes = 0;
  std::int64_t modified_ns = 0;  ///< Since 1970.
  std::uint64_t inode = 0;
  VersionTag tag;  ///< Empty for files that others wrote or changed.
  bool is_sealed =
      false;  ///< The simulator wrote these bytes, and what it keeps beside them holds.
  bool operator==(const FileInfo&) const = default;
};

/// Without tag and seal.
FileInfo info_of(const struct stat& st) noexcept;

/// Tag and seal of an open file, into `info`, whose other fields are set.
void read_seal(int fd, FileInfo& info) noexcept;
/// Keeps info.tag with the file for as long as its size and time of change are those of `info`.
/// Where the file system has no user attributes the tag is dropped, also from `info`: the ETag told
/// is the ETag kept.
void write_seal(int fd, FileInfo& info) noexcept;

/// The version of the regular file at `path`, seal included; false when there is none.
bool stat_object(const std::string& path, FileInfo& out);

/// Quotes included: "\"MD5\"" of what was put, "\"MD5 of the parts' MD5s-N\"" after a multipart
/// upload, and for files of others "\"32 hex digits-1\"", a hash of time, size and inode that no
/// client takes for an MD5.
std::string etag_of(const FileInfo& info);

struct BucketInfo {
  std::string name;
  std::int64_t created_s = 0;
};

/// A file being written; removed on destruction unless committed.
class TemporaryFile {
 public:
  TemporaryFile() = default;
  TemporaryFile(Fd fd, std::string path) noexcept : fd_(std::move(fd)), path_(std::move(path)) {}
  TemporaryFile(TemporaryFile&& other) noexcept
      : fd_(std::move(other.fd_)), path_(std::exchange(other.path_, {})) {}
  TemporaryFile& operator=(TemporaryFile&& other) noexcept;
  ~TemporaryFile() { discard(); }
  int fd() const noexcept { return fd_.get(); }
  const std::string& path() const noexcept { return path_; }
  explicit operator bool() const noexcept { return static_cast<bool>(fd_); }
  void discard() noexcept;
  /// The name belongs to someone else now.
  void release() noexcept { path_.clear(); }

 private:
  Fd fd_;
  std::string path_;
};

/// What must hold of the present version for a write to go through.
struct WriteCondition {
  std::string_view if_none_match;              ///< "*", or ETags that must not be present.
  std::string_view if_match;                   ///< ETag list of If-Match; empty: none.
  std::optional<std::uint64_t> if_generation;  ///< Time of change, ns.
  std::optional<std::int64_t> if_modified_s;   ///< Of removals: time of change, seconds.
  std::optional<std::uint64_t> if_size_bytes;  ///< Of removals.
};

class Storage {
 public:
  explicit Storage(std::string root) : root_(std::move(root)) {}
  const std::string& root() const noexcept { return root_; }

  bool bucket_exists(std::string_view bucket) const;
  std::vector<BucketInfo> list_buckets() const;
  S3Code create_bucket(std::string_view bucket);
  S3Code delete_bucket(std::string_view bucket);

  /// Path of the file that holds the key, regular and present; nullopt otherwise. `info` gets its
  /// version.
  std::optional<std::string> find(std::string_view bucket, std::string_view key,
                                  FileInfo& info) const;

  /// "root/bucket"; "root/bucket/key" for keys that can be paths.
  std::string bucket_path(std::string_view bucket) const;
  std::string natural_path(std::string_view bucket, std::string_view key) const;
  std::string hidden_path(std::string_view bucket, std::string_view rest) const;

  /// An empty file in the bucket's tmp folder. Errors: kNoSuchBucket, kInternalError.
  S3Code create_temporary(std::string_view bucket, TemporaryFile& out);
  /// Makes the file the object, at once or not at all. Errors: kPreconditionFailed, kNoSuchKey
  /// (If-Match without an object), kNotImplemented (a storage class, where the file system keeps no
  /// attributes), kInternalError.
  S3Code commit(TemporaryFile file, std::string_view bucket, std::string_view key,
                const WriteCondition& condition, const VersionTag& tag, FileInfo& out);
  /// Removes what uploads left behind that were cut off by the end of a simulator.
  void remove_stale_temporaries();
  /// Gives the object a new time of change, and so a new ETag. False when there is none.
  bool touch(std::string_view bucket, std::string_view key);
  /// Absence is success, as in S3, whatever the condition. Folders left empty go too. Errors:
  /// kPreconditionFailed.
  S3Code remove(std::string_view bucket, std::string_view key,
                const WriteCondition& condition = {});

 private:
  S3Code check(std::string_view bucket, std::string_view key,
               const WriteCondition& condition) const;
  bool allows_removal(std::string_view bucket, std::string_view key,
                      const WriteCondition& condition) const;
  /// Sets the time of the last change by hand, each greater than the one before: file systems stamp
  /// with the tick of the timer interrupt, and two versions within one tick, same size, same
  /// recycled inode, would share an ETag.
  void stamp(int fd) HEADRACE_REQUIRES(commit_mutex_);
  const std::string root_;
  Mutex commit_mutex_;
  std::int64_t last_stamp_ns_ HEADRACE_GUARDED_BY(commit_mutex_) = 0;
};

/// Quotes and W/ do not matter.
bool is_same_etag(std::string_view a, std::string_view b);

/// True when `list` (an If-Match or If-None-Match value) is "*" or holds `etag`; quotes and W/ do
/// not matter.
bool etag_matches(std::string_view list, std::string_view etag) noexcept;

/// mkdir -p of the folders above `path`. False with errno.
bool make_parent_folders(const std::string& path);

/// False with errno.
bool write_all(int fd, std::string_view bytes);

/// Appends [offset, offset + length) of `from` to `to` at its file position. False with errno.
bool append_file_range(int from, std::uint64_t offset, std::uint64_t length, int to);

}  // namespace headrace::sim
