#pragma once
/// \file
/// ParallelList: everything below a prefix of a store, with several listings in flight
/// (docs/design/0019-parallel-listing.md).
///
/// Threads: next() by one thread. Pages are asked for on threads of its own, which are started when
/// the first page was not the last; none on local stores.
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <stop_token>
#include <string>
#include <unordered_set>
#include <vector>

#include "base/mutex.h"
#include "base/thread_pool.h"
#include "headrace/store.h"
#include "store/key_space.h"

namespace headrace {

struct ParallelListOptions {
  /// Listings in flight. 1: page after page. S3 lists 5,500 times a second per prefix, so this may
  /// be more where nobody else lists.
  std::size_t max_in_flight = 8;
  /// In byte order of the key (where the store lists in order); else as they come.
  bool is_ordered = true;
  /// Without what lies in directories below that of the prefix; page after page.
  bool is_one_level = false;
  /// Pages that were listed and not yet taken, about 300 KB each. In order, a few more: each part
  /// that is soon to be taken may hold two.
  std::size_t max_buffered_pages = 64;
};

class ParallelList {
 public:
  /// `store` must outlive it. `call` holds for the whole listing.
  ParallelList(Store& store, std::string prefix, const ParallelListOptions& options = {},
               CallOptions call = {});
  /// Ends the listings in flight early.
  ~ParallelList();
  ParallelList(const ParallelList&) = delete;
  ParallelList& operator=(const ParallelList&) = delete;

  /// The next objects, at least one; none at the end. Keys that exist all the while come once.
  /// After an error only that error again. Errors: those of Store::list; kCorrupt (the store
  /// repeats itself or lists out of order); kCancelled.
  Result<std::vector<ObjectInfo>> next() HEADRACE_EXCLUDES(mutex_);

  /// Listings asked for until now.
  std::uint64_t request_count() const HEADRACE_EXCLUDES(mutex_);

 private:
  /// A part of the keys, listed page by page: those with `prefix`, above `after`, not above
  /// `until`.
  struct Segment {
    std::string prefix;
    std::string after;  ///< Empty: from the start.
    std::string until;
    bool has_until = false;
    bool keeps_until = true;  ///< `until` itself belongs to it.

    std::string continuation;
    std::string last_key;                      ///< Of the last page.
    std::unordered_set<std::size_t> tokens;    ///< Hashes of the continuations.
    std::list<std::vector<ObjectInfo>> ready;  ///< Pages to be taken.
    KeySpace space;
    std::string first_key;  ///< Where its pages began; says with last_key how dense it is.
    double reach = 8;       ///< How many pages ahead the next guess into the open goes.
    std::uint64_t page_count = 0;
    std::uint64_t key_count = 0;
    bool is_guess = false;  ///< Begins at a guessed key, and no page has come yet.
    bool is_running = false;
    bool is_done = false;
    bool may_have_directories = true;
    std::string directory;   ///< Where the next look for directories goes.
    bool is_pinned = false;  ///< Is being looked through for directories.
  };
  using Segments = std::list<Segment>;
  enum class JobKind : std::uint8_t { kNone, kPage, kDirectories };
  struct Job {
    JobKind kind = JobKind::kNone;
    Segments::iterator segment;
    ListRequest request;
  };

  void start_threads() HEADRACE_EXCLUDES(mutex_);
  void run() HEADRACE_EXCLUDES(mutex_);
  Job pick_job() HEADRACE_REQUIRES(mutex_);
  Job page_job(Segments::iterator segment) HEADRACE_REQUIRES(mutex_);
  bool may_run(const Segment& segment, std::size_t index) const HEADRACE_REQUIRES(mutex_);
  /// Splits the longest segment so that there is another to list.
  Job split_job() HEADRACE_REQUIRES(mutex_);
  double pages_left(const Segment& segment) const HEADRACE_REQUIRES(mutex_);
  /// False when no key can be thought of that divides what is left of it.
  bool split_at_guess(Segments::iterator segment) HEADRACE_REQUIRES(mutex_);
  void finish(const Job& job, Result<ListPage>&& page) HEADRACE_REQUIRES(mutex_);
  Status take_page(Segment& segment, ListPage&& page) HEADRACE_REQUIRES(mutex_);
  void take_directories(Segments::iterator segment, ListPage&& page) HEADRACE_REQUIRES(mutex_);
  void split_by_child(Segments::iterator segment, ListPage&& page) HEADRACE_REQUIRES(mutex_);
  void insert_listed(Segments::iterator place, std::vector<ObjectInfo>&& objects)
      HEADRACE_REQUIRES(mutex_);
  void split_by_group(Segments::iterator segment, const std::vector<std::string>& directories,
                      std::size_t group) HEADRACE_REQUIRES(mutex_);
  static bool is_past(const Segment& segment, const std::string& key);
  bool take_ready(std::vector<ObjectInfo>& out) HEADRACE_REQUIRES(mutex_);
  void fail(Status status) HEADRACE_REQUIRES(mutex_);
  bool is_over() const HEADRACE_REQUIRES(mutex_) { return is_ending_ || !error_.ok(); }

  Store& store_;
  const std::string prefix_;
  const ParallelListOptions options_;
  CallOptions call_;
  const std::stop_token caller_stop_;
  std::stop_source stop_;
  std::stop_callback<std::function<void()>> link_;  // the caller's stop is ours too

  mutable Mutex mutex_;
  std::condition_variable work_;
  std::condition_variable ready_;
  Segments segments_ HEADRACE_GUARDED_BY(mutex_);
  std::size_t buffered_ HEADRACE_GUARDED_BY(mutex_) = 0;
  std::int64_t credit_ HEADRACE_GUARDED_BY(mutex_) = 1;
  std::uint64_t full_pages_ HEADRACE_GUARDED_BY(mutex_) = 0;
  std::uint64_t request_count_ HEADRACE_GUARDED_BY(mutex_) = 0;
  bool is_parallel_ HEADRACE_GUARDED_BY(mutex_);
  bool was_split_ HEADRACE_GUARDED_BY(mutex_) = false;
  bool is_ending_ HEADRACE_GUARDED_BY(mutex_) = false;
  Status error_ HEADRACE_GUARDED_BY(mutex_);
  std::unique_ptr<ThreadPool> threads_;  // last: joined first
};

}  // namespace headrace
