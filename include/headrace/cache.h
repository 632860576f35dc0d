#pragma once
/// \file
/// Cache: what was read from stores, kept as files in a directory of a fast disk (NVMe), for all
/// processes and jobs of a node.
///
/// Place: src/tier/. cache_reads() wraps a store; whoever reads through the wrapper reads the same
/// bytes as without it, or the same error. docs/design/0045.
///
/// Threads: every function from any thread.
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "headrace/clock.h"
#include "headrace/metrics.h"
#include "headrace/seal_key.h"
#include "headrace/status.h"
#include "headrace/store.h"

namespace headrace {

struct CacheOptions {
  /// May be shared by any number of processes and jobs. Made when missing: for its owner alone
  /// (mode 0700), or with is_group_shared for its group, too (02770, files 0660, whatever the umask
  /// says), which is the group of the directory above where that has the setgid bit, else the
  /// process's. For whom one is that is there stays so.
  std::string directory;
  bool is_group_shared = false;
  /// Encrypts what is kept (docs/design/0057). A directory is encrypted under the key it was made
  /// with, or never; nullptr: it is not, or is only looked at.
  std::shared_ptr<const SealKey> key = {};
  /// cache_reads() uses it. False: it is looked at, made smaller and pinned in, for which the key
  /// of an encrypted directory need not be known.
  bool is_for_reads = true;
  /// Bytes of files that the directory may hold, written by anybody; 0: as much as free_floor_bytes
  /// leaves, or the limit under which this process has the directory open, before or later: the
  /// first that is named, and another is an error. Where processes name different limits, each
  /// keeps its own.
  std::uint64_t limit_bytes = 0;
  /// Free bytes of the file system below which nothing is added. Default: a twentieth of it, at
  /// most 16 GiB.
  std::uint64_t free_floor_bytes = UINT64_MAX;
  /// Memory for what waits to be written; with more to write, extents are left out. Where a process
  /// opens a directory several times, the most that it was given.
  std::uint64_t buffer_bytes = std::uint64_t{256} << 20;
  /// Reads that name no version are cached from this length on: head() tells their version first,
  /// which costs a request and may be a second old. Shorter ones would be over before.
  std::uint64_t least_unnamed_bytes = std::uint64_t{256} << 10;
  std::uint32_t reader_count = 8;  ///< Threads that read files.
  std::uint32_t writer_count = 4;  ///< Threads that write them.
  Clock* clock = nullptr;          ///< nullptr: system_clock().
};

/// What lies in the directory, of all processes.
struct CacheUsage {
  std::uint64_t extent_count = 0;
  std::uint64_t file_bytes = 0;   ///< With headers.
  std::uint64_t data_bytes = 0;   ///< Without.
  std::uint64_t limit_bytes = 0;  ///< Of this process; 0: none.
  std::string key_id;             ///< SealKey::id(); "": not encrypted.
};

/// One file.
struct CachedExtent {
  std::string path;  ///< Relative to the directory.
  /// Of the object, as the header says; empty when the header is broken.
  std::string url, etag;
  std::uint64_t offset_bytes = 0, length_bytes = 0;
  std::uint64_t object_size_bytes = 0;  ///< 0: unknown.
  std::uint64_t file_bytes = 0;
};

struct CacheCheck {
  std::uint64_t extent_count = 0;
  std::uint64_t data_bytes = 0;    ///< Of those that are not broken.
  std::uint64_t broken_count = 0;  ///< Deleted.
};

class Cache {
 public:
  /// Takes part in the cache of a directory. Processes that open a directory twice get one object.
  /// What killed processes left behind is made good. Errors: those of the file system; kUnsupported
  /// (a file system without locks, a cache of another version), kInvalidArgument (options; another
  /// limit; a key for a directory that is not encrypted, is_group_shared for one that is not
  /// shared), kDenied (an encrypted directory with another key, or for reads without one).
  static Result<std::shared_ptr<Cache>> open(const CacheOptions& options);
  /// Waits for files under way.
  virtual ~Cache() = default;
  Cache(const Cache&) = delete;
  Cache& operator=(const Cache&) = delete;

  virtual const std::string& directory() const noexcept = 0;
  /// Names alone are read: about 1 us an extent.
  virtual Result<CacheUsage> usage() = 0;
  /// Calls `visit` for each extent, with its header read. Errors: those of the directory.
  virtual Status list(const std::function<void(const CachedExtent&)>& visit) = 0;
  /// Reads everything and deletes what does not match its sums, or with a key its tags, or cannot
  /// be read. `progress`: bytes so far; false ends it early. Errors: those of the directory; those
  /// of deleting and opening files, when all were looked at.
  virtual Result<CacheCheck> verify(const std::function<bool(std::uint64_t)>& progress) = 0;
  /// Deletes extents of objects whose URL begins with `url_prefix` (empty: all). Returns the bytes
  /// of files that went. Errors: those of the directory; those of deleting, when all that can go
  /// are gone.
  virtual Result<std::uint64_t> remove(const std::string& url_prefix) = 0;
  /// Deletes what is needed last until files take `bytes` at most, or all are pinned. Waits for
  /// others who evict. Returns the bytes that went. Errors: kDeadline (somebody evicts for 10 s),
  /// those of the directory; those of deleting, when all that can go are gone.
  virtual Result<std::uint64_t> shrink(std::uint64_t bytes) = 0;
  /// Waits until everything that was read before is written or left out.
  virtual void flush() = 0;

  // --- for whoever fills it on purpose ---

  /// What the files of all processes may take at this moment: the limit, or less where the disk has
  /// less room.
  virtual std::uint64_t capacity_bytes() const = 0;
  /// What they take, as far as is known without counting.
  virtual std::uint64_t used_bytes() const = 0;
  /// Of the file of an extent of `length_bytes`.
  virtual std::uint64_t stored_bytes(std::uint64_t length_bytes) const noexcept = 0;
  /// Memory for what may come from stores now and is kept: with more, some is left out because too
  /// much waits to be written.
  virtual std::uint64_t write_room_bytes() const noexcept = 0;
  /// Lets so much memory wait to be written, if it was less: CacheOptions::buffer_bytes of one more
  /// who reads through it.
  virtual void allow_write_room(std::uint64_t bytes) noexcept = 0;
  /// What an extent of `length_bytes` takes of it at most.
  virtual std::uint64_t waiting_bytes_of(std::uint64_t length_bytes) const noexcept = 0;

  // --- pins ---

  /// Extents of objects whose URL begins with `url_prefix` (not empty) are never evicted, by no
  /// process, until it is unpinned: also those that come later. The directory remembers it.
  /// remove() deletes them all the same. Errors: kInvalidArgument, those of writing.
  virtual Status pin(const std::string& url_prefix) = 0;
  /// False: exactly this was not pinned.
  virtual Result<bool> unpin(const std::string& url_prefix) = 0;
  /// In order.
  virtual Result<std::vector<std::string>> pins() = 0;
  virtual void append_metrics(MetricList& out) const = 0;

 protected:
  Cache() = default;
};

/// A handle on the store of `inner` whose reads are served from `cache` where it has them, and kept
/// there where not: those of a known version (Request::etag), and of others those that are long
/// (CacheOptions::least_unnamed_bytes). Shorter reads and all writes go to the store. A version
/// that the cache has can be read after the object has changed or gone; head() and list() ask the
/// store. Bytes are checked against their sums at every read; what does not match, cannot be read,
/// or is read with Request::fresh_connection is deleted and fetched. A cache that cannot be written
/// costs its use, never a read. `accept_limit`: reads of one handle that are accepted and not
/// handed out.
std::unique_ptr<Store> cache_reads(std::unique_ptr<Store> inner, std::shared_ptr<Cache> cache,
                                   std::size_t accept_limit = 4096);

}  // namespace headrace
