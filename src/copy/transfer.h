#pragma once
/// \file
/// What the threads of one CopyJob share: options, counters, the queue of things to move, and large
/// objects under way.
///
/// Threads: every function from any thread unless it says otherwise.
#include <sys/stat.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "base/fd.h"
#include "base/mutex.h"
#include "base/thread_pool.h"
#include "copy/kept_settings.h"
#include "copy/local_tree.h"
#include "copy/part_window.h"
#include "headrace/copy.h"
#include "headrace/memory.h"

namespace headrace::copy_detail {

/// One object to copy.
struct Item {
  std::string from_key, to_key;
  std::uint64_t size_bytes = 0;
  std::string etag;
  std::int64_t modified_unix_s = 0;
  std::string version_id;
  /// Of objects without bytes, which no read tells about: once they were asked for.
  std::shared_ptr<const ObjectDetails> details;
  bool is_second_try = false;
  /// The store knows no writes on the condition that there is nothing.
  bool is_unconditional = false;
  std::uint32_t mode = 0666;  ///< Of a file that is copied to a file: its permissions.
};

/// A large object under way; its parts may be moved by several threads.
struct LargeCopy {
  Item item;
  std::uint64_t part_bytes = 0;
  std::uint32_t part_count = 0;

  Fd local_source;   ///< When the source is a file,
  Fd direct_source;  ///< the same with O_DIRECT, where that is possible.
  struct stat source_stat {};

  std::unique_ptr<PartialFile> file;  ///< When the target is a file; else
  std::string upload_id;
  std::shared_ptr<const ObjectSettings> settings;  ///< Of the upload.
  bool is_upload_kept = false;                     ///< A later run can find it and its parts.
  bool is_adopted = false;  ///< Begun by an earlier run, or by somebody else.

  std::atomic<std::uint32_t> left_count{0};  ///< Parts that have not ended.
  std::atomic<bool> has_failed{false};

  Mutex mutex;
  std::uint32_t next_part HEADRACE_GUARDED_BY(mutex) = 0;
  std::vector<bool> is_there HEADRACE_GUARDED_BY(mutex);  ///< Parts of an earlier run.
  std::vector<UploadedPart> parts HEADRACE_GUARDED_BY(mutex);
  Status error HEADRACE_GUARDED_BY(mutex);

  std::uint64_t offset_of(std::uint32_t part) const noexcept { return part * part_bytes; }
  std::uint64_t length_of(std::uint32_t part) const noexcept {
    return std::min(part_bytes, item.size_bytes - offset_of(part));
  }
  void fail(Status status) HEADRACE_EXCLUDES(mutex) {
    MutexLock lock(mutex);
    if (error.ok()) error = std::move(status);
    has_failed = true;
  }
};

/// What a mover moves: a small object, or one part of a large one.
struct Unit {
  Item item;  ///< Small.
  std::shared_ptr<LargeCopy> large;
  std::uint32_t part = 0;
  TimePoint began{};  ///< Of a part: pulled.
  std::uint64_t length_bytes() const noexcept {
    return large ? large->length_of(part) : item.size_bytes;
  }
};

/// One who may sleep because there is nothing to do.
class Sleeper {
 public:
  virtual ~Sleeper() = default;
  /// Ends its sleep, or the next one.
  virtual void ring() noexcept = 0;
  std::atomic<bool> is_hungry{false};
};

/// Units to move, and how many objects have not ended.
class WorkQueue {
 public:
  /// Adds small objects; waits while very many are queued. False when closed by stop().
  bool push(std::vector<Item>& items) HEADRACE_EXCLUDES(mutex_);
  /// Adds one that was pulled before. Never waits: movers come here themselves, and what the others
  /// wait for is that they go on. False when closed by stop().
  bool push_again(Item item) HEADRACE_EXCLUDES(mutex_);
  void add_large(std::shared_ptr<LargeCopy> large) HEADRACE_EXCLUDES(mutex_);
  /// Moves up to `most` units to the end of `out`, parts as far as the window has room; true when
  /// there was one.
  bool pull(std::vector<Unit>& out, std::size_t most) HEADRACE_EXCLUDES(mutex_);

  /// A part that was pulled has ended, and moved so many bytes (0: it failed, or was not begun).
  void end_part(std::uint64_t moved_bytes, TimePoint began);
  /// Whether parts wait only for the window, which see_arrived() may widen.
  bool waits_for_window() HEADRACE_EXCLUDES(mutex_);
  /// So many bytes of the source have arrived by now.
  void see_arrived(std::uint64_t bytes) HEADRACE_EXCLUDES(mutex_);
  /// Before any thread pulls: as many parts as are asked for.
  void set_unlimited() noexcept { is_limited_ = false; }

  /// Objects that were found and have not ended yet.
  void expect(std::uint64_t count) noexcept { unfinished_ += count; }
  void finish_one() noexcept;
  /// Everything was found: the queue is drained when all that is expected has ended.
  void close() noexcept;
  void stop() noexcept HEADRACE_EXCLUDES(mutex_);
  bool is_drained() const noexcept { return is_closed_ && unfinished_ == 0; }

  /// Large objects with parts that nobody will pull any more.
  std::deque<std::shared_ptr<LargeCopy>> take_large() HEADRACE_EXCLUDES(mutex_);

  /// Before any thread pulls.
  void add_sleeper(Sleeper* sleeper) { sleepers_.push_back(sleeper); }
  void ring_all() noexcept;

 private:
  void ring_hungry(std::size_t count) noexcept;
  bool pull_parts(std::vector<Unit>& out, std::size_t& most) HEADRACE_REQUIRES(mutex_);

  PartWindow window_;
  bool is_limited_ = true;
  Mutex mutex_;
  std::condition_variable room_;
  std::deque<Item> small_ HEADRACE_GUARDED_BY(mutex_);
  std::deque<std::shared_ptr<LargeCopy>> large_ HEADRACE_GUARDED_BY(mutex_);
  bool is_stopped_ HEADRACE_GUARDED_BY(mutex_) = false;
  std::atomic<std::uint64_t> unfinished_{0};
  std::atomic<bool> is_closed_{false};
  std::vector<Sleeper*> sleepers_;
};

struct Counts {
  std::atomic<std::uint64_t> found{0}, found_bytes{0}, done{0}, done_bytes{0}, resumed_bytes{0},
      skipped{0}, deleted{0}, failed{0};
  std::atomic<bool> is_listing_done{false};
};

/// The job's middle: everything that ends an object, and blocking calls on a pool of threads.
class Transfer {
 public:
  Transfer(Store& from, Store& to, const CopyOptions& options, std::unique_ptr<SlabPool> pool);
  ~Transfer();

  Store& from() noexcept { return from_; }
  Store& to() noexcept { return to_; }
  const CopyOptions& options() const noexcept { return options_; }
  const std::string& from_directory() const noexcept { return from_directory_; }
  LocalTree* local_target() noexcept { return local_target_.get(); }
  /// Nothing that exists at the target is replaced.
  bool keeps_existing() const noexcept { return options_.rule == CopyRule::kIfAbsent; }
  bool copies_on_server() const noexcept { return copies_on_server_; }
  const KeptSettings& settings() const noexcept { return settings_; }
  SlabPool& pool() noexcept { return *pool_; }
  WorkQueue& queue() noexcept { return queue_; }
  Counts& counts() noexcept { return counts_; }
  const Counts& counts() const noexcept { return counts_; }
  std::stop_token stop_token() const { return stop_.get_token(); }
  bool is_stopped() const noexcept { return stop_.stop_requested(); }
  void request_stop() noexcept;
  /// Stops because of `reason`.
  void give_up(Status reason) HEADRACE_EXCLUDES(mutex_);
  /// Runs `call` on the pool of blocking calls; in this thread when that is full.
  void post(std::function<void()> call);
  CallOptions call_options() const { return {.stop = stop_.get_token()}; }

  std::uint64_t part_bytes_for(std::uint64_t size_bytes) const noexcept;
  bool is_small(std::uint64_t size_bytes) const noexcept { return size_bytes <= small_bytes_; }

  // --- the life of an object ---

  /// Begins an object that is too large for one request, or is copied by the server. Blocks while
  /// many are under way.
  void begin_large(Item item) HEADRACE_EXCLUDES(mutex_);
  /// A small object has arrived.
  void succeed(const Item& item, std::uint64_t new_bytes);
  /// An object failed for good.
  void fail(const Item& item, Status status);
  void fail_key(const std::string& key, Status status) HEADRACE_EXCLUDES(mutex_);
  /// Something has come to the target's name, which the job's rule does not replace.
  void skip(const Item& item);
  /// The store refused the condition of a write: looks whether there is something, and writes
  /// without.
  void retry_unconditional(Item item);
  /// The object is another version than was listed: looks again, once.
  void retry_changed(Item item, Status status);
  /// Asks for Item::details of an object without bytes, and queues it again.
  void look_up(Item item);
  /// A part ended, well or not; the last one ends the object.
  void end_part(const Unit& unit, std::uint64_t moved_bytes);
  /// After the movers have ended: waits for blocking calls, and ends large objects that were
  /// stopped in the middle.
  void end_calls() HEADRACE_EXCLUDES(mutex_);
  void add_event(CopyEvent event) HEADRACE_EXCLUDES(mutex_);

  PublishOptions publish_options(const Item& item) const;
  std::vector<CopyEvent> take_events() HEADRACE_EXCLUDES(mutex_);
  std::vector<CopyFailure> failures() HEADRACE_EXCLUDES(mutex_);
  /// Why it stopped by itself; ok otherwise.
  Status take_reason() HEADRACE_EXCLUDES(mutex_);

 private:
  void open_large(Item item);
  Status open_ends(LargeCopy& large);
  Status open_upload(LargeCopy& large);
  bool adopt_upload(LargeCopy& large);
  Result<bool> find_uploaded_parts(LargeCopy& large, const std::string& upload_id);
  std::string resumable_version(const Item& item) const;
  void finish_large(const std::shared_ptr<LargeCopy>& large);
  Status complete_large(LargeCopy& large, bool& is_taken);
  void abandon(LargeCopy& large, Code reason);
  void copy_on_server(Item item);
  std::size_t most_server_copies() const noexcept;
  void look_again(Item item);
  Status check_absent(const std::string& to_key);
  Result<ObjectInfo> head_source(const Item& item);
  Result<std::shared_ptr<const ObjectSettings>> settings_of_upload(const LargeCopy& large);
  Result<bool> is_as_wanted(const LargeCopy& large);
  void end_large() HEADRACE_EXCLUDES(mutex_);

  Store& from_;
  Store& to_;
  const CopyOptions options_;
  const std::string from_directory_;
  const std::unique_ptr<LocalTree> local_target_;
  const bool copies_on_server_;
  const KeptSettings settings_;
  std::uint64_t part_bytes_ = 0;
  std::uint64_t small_bytes_ = 0;
  const std::unique_ptr<SlabPool> pool_;
  WorkQueue queue_;
  Counts counts_;
  std::stop_source stop_;

  Mutex mutex_;
  std::condition_variable large_ended_;
  std::size_t large_count_ HEADRACE_GUARDED_BY(mutex_) = 0;
  std::vector<CopyEvent> events_ HEADRACE_GUARDED_BY(mutex_);
  std::vector<CopyFailure> failures_ HEADRACE_GUARDED_BY(mutex_);
  Status reason_ HEADRACE_GUARDED_BY(mutex_);
  std::unique_ptr<ThreadPool> calls_ HEADRACE_GUARDED_BY(mutex_);
};

}  // namespace headrace::copy_detail
