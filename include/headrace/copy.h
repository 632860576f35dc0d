#pragma once
/// \file
/// Copying objects and trees between any two stores: streaming, parallel, resumable, in bounded
/// memory.
///
/// A CopyJob lists its source while it copies. Small objects travel in one request, large ones in
/// parallel parts. What a run that was killed or cancelled leaves (the parts of large objects) is
/// found by the next run of the same copy and not moved again; everything else that it leaves is
/// removed by the next run that writes to the same directory.
///
/// Local files, when a store tells its local_directory(): read and written in place, published by
/// rename, so that a reader sees the old file or the new one. No fsync unless asked for: what has
/// its name after a power failure may be empty, and a killed process loses nothing. Parts of a file
/// that a run goes on with are checked against their CRC-32C.
///
/// Copies between stores keep content type, content encoding (and language, disposition, cache
/// control) and user metadata; StoreOptions::settings of the target replace them. Storage class,
/// encryption and access are the target's, tags are not copied. What the target cannot keep is told
/// in the log (headrace/log.h). Files keep none of it; a file that becomes an object gets the type
/// of its name (guess_content_type()).
///
/// Threads: run() by one thread, once; progress(), take_events() and failures() from any thread
/// meanwhile and later.
#include <cstdint>
#include <memory>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "headrace/status.h"
#include "headrace/store.h"

namespace headrace {

/// A pattern of keys: `*` and `?` match within a path component, `**` across them, `[0-9]`, `[!a]`
/// one character, `{a,b}` alternatives, `\` takes the next character as it is. A character is one
/// UTF-8 sequence, or a byte that belongs to none. Pure value.
class Glob {
 public:
  /// Errors: kInvalidArgument (brackets or braces not closed, more than 1,000 alternatives).
  static Result<Glob> parse(std::string_view pattern);
  /// Whether the whole of `text` matches.
  bool matches(std::string_view text) const;
  /// Whether the last path component of `text` matches; when the pattern has a `/`, all of it.
  bool matches_name(std::string_view text) const;
  /// What every match starts with: the text before the first special character.
  const std::string& prefix() const noexcept { return prefix_; }
  /// False when the pattern is a plain name.
  bool has_wildcard() const noexcept { return has_wildcard_; }

 private:
  std::vector<std::string> alternatives_;
  std::string prefix_;
  bool has_wildcard_ = false;
};

/// Which names below a tree take part: those that match one of `include` (or all, when it is empty)
/// and none of `exclude`. A pattern without `/` is matched against the last path component.
struct NameFilter {
  std::vector<Glob> include, exclude;
  bool accepts(std::string_view name) const;
};

/// When an object that exists at the target is copied again.
enum class CopyRule : std::uint8_t {
  kAlways,
  /// Never; nor one that comes meanwhile, whose source counts as skipped. By a condition of the
  /// write where the store has one; of objects in parts, of copies on the server, and where the
  /// store has none, looked at just before.
  kIfAbsent,
  kIfSizeDiffers,  ///< Only the size counts.
  kIfNewer,        ///< Other size, or the source was modified later than the target.
  /// Other size; or another time of modification (local targets: copies get the source's time); or,
  /// between two remote stores, another ETag.
  kIfDifferent,
};

/// One object, or all objects whose key starts with `from`.
struct CopyTask {
  std::string from;  ///< Key, or prefix of a tree ("" is the whole store).
  std::string to;    ///< Key; of a tree: what replaces the first `strip_bytes` of keys.
  bool is_tree = false;
  std::size_t strip_bytes = 0;  ///< Of a tree: at most from.size().
  std::string pattern = {};     ///< Of a tree: Glob that whole source keys must match; empty: all.
  std::string version_id = {};  ///< Of one object: this version of it, as Request::version_id.
};

/// Whether objects of two tasks may get one name at the target, as far as the tasks tell.
/// O(n log n). `flattens`: as CopyOptions::flattens.
bool may_meet(const std::vector<CopyTask>& tasks, bool flattens);

/// Which object gets which name at a target, so that two of one name are told before one replaces
/// the other. Remembers every name. Of one target store; one thread at a time.
class CopyNames {
 public:
  /// The object with this URL gets the name `to_key` of `to`. Errors: kInvalidArgument, another one
  /// does; the message has both.
  Status take(const std::string& to_key, const std::string& from_url, const Store& to);
  /// The same, before it is copied. False: it was before, by another task.
  Result<bool> begin(const std::string& to_key, const std::string& from_url, const Store& to);

 private:
  struct Taken {
    std::string from_url;
    bool has_begun = false;
  };
  Result<Taken*> taken(const std::string& to_key, const std::string& from_url, const Store& to);

  std::unordered_map<std::string, Taken> by_key_;
};

/// Whether two names are one object, also where the stores' URLs are two spellings of one place
/// (az:// and abfss://, gs:// and gcs://): to remove one would remove the other.
bool is_same_object(const Store& from, std::string_view from_key, const Store& to,
                    std::string_view to_key);

struct CopyOptions {
  std::vector<CopyTask> tasks;
  CopyRule rule = CopyRule::kAlways;
  /// On keys of trees without their first strip_bytes, on the last part of those of single objects.
  NameFilter filter;
  /// Deletes what is below a tree's `to` and not in the source, after everything was listed and
  /// copied without failure. Only what pattern and filter would take, and nothing through symbolic
  /// links. No task's target may be below another tree's.
  bool deletes_extra = false;
  /// Objects of trees come to lie in their task's `to` itself, by the last component of their keys.
  /// Not with deletes_extra.
  bool flattens = false;
  /// Of several jobs with one target store: shared by them, and filled by take_copy_names() for all
  /// before the first one runs. nullptr: the job has its own, where its tasks may meet.
  std::shared_ptr<CopyNames> names = {};
  bool is_dry_run = false;    ///< Changes nothing; events say what would be done.
  bool keeps_events = false;  ///< Collect events (always in a dry run).
  bool keeps_times = false;   ///< Local targets get the source's time of modification.
  bool syncs_files = false;   ///< fsync local files before they get their name.
  /// Objects up to twice this size travel in one request, larger ones in parts of it. 0: 8 MiB, or
  /// more when the store's limit of parts demands it; objects above 16 MiB are downloaded in parts
  /// of 4 MiB. Larger: fewer requests, more memory.
  std::uint64_t part_bytes = 0;
  std::uint64_t memory_bytes = std::uint64_t{256} << 20;  ///< Of data under way; at least 1 MiB.
  /// Requests, all together; > 0. A ceiling: how many of them are on the wire is found by the
  /// stores' own control.
  std::uint32_t max_in_flight = 512;
  std::uint32_t thread_count = 0;  ///< Threads that move data. 0: by the number of cores.
  /// Stops when so many objects failed and none succeeded (wrong bucket, no permission).
  std::uint64_t give_up_count = 100;
};

/// Counters of a job. Each only grows, but found_*; together they are a snapshot that may be torn.
struct CopyProgress {
  /// To copy, as far as listed; less what turned out to be there (CopyRule::kIfAbsent).
  std::uint64_t found_count = 0, found_bytes = 0;
  std::uint64_t done_count = 0, done_bytes = 0;  ///< done_bytes also counts parts.
  std::uint64_t resumed_bytes = 0;               ///< Of done_bytes: there from an earlier run.
  std::uint64_t skipped_count = 0;               ///< Up to date at the target.
  std::uint64_t deleted_count = 0;
  std::uint64_t failed_count = 0;
  bool is_listing_done = false;  ///< found_* are final.
};

struct CopyEvent {
  enum class Kind : std::uint8_t { kCopied, kDeleted } kind = Kind::kCopied;
  std::string from_key;  ///< kCopied
  std::string to_key;
  std::uint64_t size_bytes = 0;
  std::string from_etag = {};  ///< Of the version that was copied; empty where there is none.
};

struct CopyFailure {
  std::string key;  ///< In the source; of a failed deletion: in the target.
  Status status;
};

class CopyJob {
 public:
  /// The stores must outlive the job; they may be the same one, also under two URLs (then it copies
  /// on the server where it can). Errors: kInvalidArgument (options), kUnsupported (a target that
  /// cannot be written), kExhausted.
  static Result<std::unique_ptr<CopyJob>> create(Store& from, Store& to,
                                                 const CopyOptions& options);
  virtual ~CopyJob() = default;

  /// Copies everything; blocks. ok even when single objects failed: see failures(). Errors: those
  /// of listing; kNotFound (a task names nothing); kInvalidArgument (a tree would be copied into
  /// itself, or its source deleted as extra; two objects would get one name: told before anything
  /// is copied, and of one that comes only while it copies, instead of copying it); kExhausted (no
  /// thread); kCorrupt (a store that should lists in no order);
  /// kCancelled; the first failure when it gave up.
  virtual Status run(std::stop_token stop = {}) = 0;

  virtual CopyProgress progress() const = 0;
  /// Events since the last call.
  virtual std::vector<CopyEvent> take_events() = 0;
  /// At most 10,000, the first ones.
  virtual std::vector<CopyFailure> failures() const = 0;

 protected:
  CopyJob() = default;
};

/// Deletes objects that were copied, unless they are another version by now than the one with this
/// ETag (an empty one: whatever is there): looks at each just before it goes, as few stores delete
/// on a condition. One Status a key, in order; kChanged: it stays. A missing one succeeds.
/// \pre as many of both
std::vector<Status> remove_copied(Store& store, std::span<const std::string> keys,
                                  std::span<const std::string> etags, const CallOptions& call = {});

/// Lists what a job with these options would copy, and takes all names in `options.names`. Errors:
/// kInvalidArgument (two objects would get one name; a pattern), those of listing, kCancelled. \pre
/// options.names
Status take_copy_names(Store& from, const Store& to, const CopyOptions& options,
                       std::stop_token stop = {});

struct StreamOptions {
  std::uint64_t part_bytes = std::uint64_t{8} << 20;
  std::uint64_t memory_bytes = std::uint64_t{128} << 20;
  std::uint32_t max_in_flight = 16;
  std::string version_id = {};  ///< read_stream(): as Request::version_id.
  /// write_stream(): kChanged when the object is there; of one in parts before it becomes visible,
  /// as no store has that condition for parts.
  bool if_absent = false;
};

/// Writes what can be read from the descriptor, up to its end, as one object; in parts when it is
/// longer than one, which grow with their number, as far as the memory allows, so that the store's
/// limit of parts does not end it. Nothing is visible when it fails. Errors: kInvalidArgument (the
/// memory does not hold the least part of the store), those of kPut, kPutPart; of read().
Result<ObjectInfo> write_stream(int from_fd, Store& to, const std::string& key,
                                const StreamOptions& options = {}, std::stop_token stop = {});

/// Reads [begin, end) of one version of an object in parallel parts and writes them in order to the
/// descriptor. `end` past the object's is its end. Returns the bytes written. Errors: those of
/// kGet; of write(), EPIPE as kCancelled.
Result<std::uint64_t> read_stream(Store& from, const std::string& key, int to_fd,
                                  std::uint64_t begin, std::uint64_t end,
                                  const StreamOptions& options = {}, std::stop_token stop = {});

/// kUnsupported when a file that takes this local name would take it from a device, a fifo, a
/// socket or a link to one. Copies ask for each of their files; a program asks before the work
/// whose result is to be the file.
Status check_replaceable(const std::string& path);

}  // namespace headrace
