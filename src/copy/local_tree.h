#pragma once
/// \file
/// The target directory of a copy: small files written in one go, large ones in parts that a later
/// run finds again.
///
/// Threads: LocalTree and PartialFile from any thread; a SmallFileWriter by one at a time.
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/fd.h"
#include "base/mutex.h"
#include "headrace/status.h"

namespace headrace::copy_detail {

/// How a file gets its name.
struct PublishOptions {
  std::int64_t modified_unix_s = 0;  ///< 0: now.
  bool is_synced = false;            ///< fsync of the file first, of its directory then.
  bool if_absent = false;            ///< Takes a free name only.
  /// Permissions of a new file, less the umask's. A file that is replaced keeps its own.
  std::uint32_t mode = 0666;
};

/// An open directory below the root.
struct Directory {
  std::string path;
  Fd fd;
};

class LocalTree {
 public:
  explicit LocalTree(std::string root) : root_(std::move(root)) {}
  const std::string& root() const noexcept { return root_; }
  /// The directory where `key` will lie, created when missing; and, at its first use, rid of what
  /// dead runs left. Errors: kInvalidArgument (a key that leaves the root or has no path),
  /// kUnsupported (a file is in the way), of errno_status().
  Result<std::shared_ptr<const Directory>> directory_of(std::string_view key)
      HEADRACE_EXCLUDES(mutex_);

 private:
  const std::string root_;
  Mutex mutex_;
  std::unordered_map<std::string, std::shared_ptr<const Directory>> open_
      HEADRACE_GUARDED_BY(mutex_);
};

class SmallFileWriter {
 public:
  explicit SmallFileWriter(LocalTree& tree);
  /// Writes a whole file and gives it its name. Errors: those of directory_of(); kUnsupported (a
  /// directory has the name); kChanged (if_absent, and the name is taken); of errno_status().
  Status write(std::string_view key, std::span<const std::byte> bytes,
               const PublishOptions& options);

 private:
  Status write_once(std::string_view name, std::span<const std::byte> bytes,
                    const PublishOptions& options, bool& is_lost);

  LocalTree& tree_;
  // One name, used again and again: after a kill there is at most one such file per thread.
  const std::string temporary_name_;
  std::string directory_key_;
  std::shared_ptr<const Directory> directory_;
};

/// A large file on its way: ".headrace-<hash of its name>.part" beside the target, at its final
/// size, with a record after its end of which parts are there and their CRC-32C. Locked while its
/// owner lives. When destroyed unpublished it stays if it holds a part and is resumable, else it is
/// removed.
class PartialFile {
 public:
  struct Plan {
    std::string key;
    std::uint64_t size_bytes = 0;
    std::uint64_t part_bytes = 0;  ///< > 0; of all parts but the last.
    std::string version;           ///< Of the source. Empty: not resumable.
    std::uint32_t mode = 0666;     ///< PublishOptions::mode.
  };
  /// Opens one, or goes on with what an earlier run left of the same plan, whose parts are read and
  /// checked. Errors: as SmallFileWriter::write(); kUnavailable (another process is at it);
  /// kCancelled.
  static Result<std::unique_ptr<PartialFile>> open(LocalTree& tree, const Plan& plan,
                                                   const std::stop_token& stop);
  ~PartialFile();
  PartialFile(const PartialFile&) = delete;
  PartialFile& operator=(const PartialFile&) = delete;

  /// Whether the part was there from an earlier run.
  bool has_part(std::size_t index) const { return is_there_[index]; }
  int fd() const noexcept { return fd_.get(); }
  /// Past the page cache where file system and alignment (4 KiB) allow.
  Status write_part(std::size_t index, std::span<const std::byte> bytes);
  /// Errors: as SmallFileWriter::write().
  Status publish(const PublishOptions& options);
  /// Will be removed, not kept.
  void give_up() noexcept { is_resumable_ = false; }

 private:
  PartialFile(std::shared_ptr<const Directory> directory, const Plan& plan);
  Status open_file();
  Status write_bytes(std::span<const std::byte> bytes, std::uint64_t offset_bytes);
  Status lay_out();
  Status write_header();
  Status load_parts(const std::stop_token& stop);
  std::string header() const;
  std::uint64_t state_offset() const noexcept;
  std::size_t part_count() const noexcept { return is_there_.size(); }
  std::uint64_t length_of(std::size_t index) const noexcept;
  std::string path() const { return directory_->path + "/" + name_; }

  const std::shared_ptr<const Directory> directory_;
  const Plan plan_;
  const std::string name_;  // of the file to be
  const std::string temporary_name_;
  Fd fd_;
  Fd direct_;  // the same, O_DIRECT; empty when the file system has no such thing
  std::vector<bool> is_there_;
  std::atomic<bool> has_parts_{false};
  std::atomic<bool> is_resumable_;
  bool is_published_ = false;
};

/// Reads all of `bytes` from a file whose descriptors for the page cache and past it these are
/// (`direct` may be -1): what is in the cache from there, the rest past it, so that large files do
/// not push out what others need. Errors: kChanged (the file is shorter), of errno_status().
Status read_file(int fd, int direct, std::uint64_t offset_bytes, std::span<std::byte> bytes);

}  // namespace headrace::copy_detail
