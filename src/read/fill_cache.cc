// The wants are walked once; what is held already costs a look at names. What was read is looked
// for again in groups, after the cache has written it: only then is it known whether it was
// kept. A cache that has no room left, or only for what is needed earlier, leaves whole groups out,
// which is where a fill that need not be complete ends.
//
// Invariants:
// - No more is under way than the cache's buffers take in, so that nothing is left out only because
//   the disk is slower than the store; but at least one request, so that it goes on.
// - The plan lives with the handle: while this runs, no process evicts what was filled for what is
//   needed later.
#include "headrace/fill_cache.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "read/request_plan.h"
#include "store/submit_queue.h"

namespace headrace {
namespace {

/// Requests under way, at most: more hide no first-byte time that these do not (facts of stores).
constexpr std::size_t kMostInFlight = 64;
/// How often it is looked whether there is room, or leave, to read.
constexpr std::chrono::milliseconds kPause{5};
constexpr std::chrono::milliseconds kReportPause{50};
/// Address space, not memory: what is under way is bounded by FillOptions::memory_bytes.
constexpr std::uint64_t kPoolBytes = std::uint64_t{64} << 30;
/// Extents after which it is looked which were kept; fewer where the cache is nearly full.
constexpr std::size_t kGroup = 256;
constexpr std::size_t kSmallGroup = 8;
constexpr std::uint64_t kLeastRequestBytes = std::uint64_t{64} << 10;
/// Of the capacity: what counts as nearly full.
constexpr std::uint64_t kFullShare = 32;
/// An extent that was left out is read so often again where all are required.
constexpr int kRounds = 4;

class Fill {
 public:
  struct Parts {
    const Dataset& dataset;
    Store& handle;
    Cache& cache;
    SlabPool& pool;  ///< With room for any request: FillOptions::memory_bytes bounds what is out.
  };
  Fill(const Parts& parts, const FillOptions& options, const std::stop_token& stop)
      : dataset_(parts.dataset),
        handle_(parts.handle),
        cache_(parts.cache),
        options_(options),
        stop_(stop),
        rule_(read::cut_rule(handle_.traits(), largest_request())),
        pool_(parts.pool),
        queue_(handle_) {}

  Status run() {
    list_wants();
    HEADRACE_TRY(survey());
    for (int round = 0; round < kRounds; ++round) {
      std::vector<Extent> left;
      HEADRACE_TRY(walk(left));
      if (left.empty() || !options_.is_all_required) break;
      again_ = std::move(left);
    }
    report_.missing_bytes = 0;
    each_request([&](const Extent& extent) {
      if (!is_held(extent)) report_.missing_bytes += extent.length_bytes;
    });
    tell(true);
    if (report_.missing_bytes == 0 || !options_.is_all_required) return {};
    return Status(
        Code::kExhausted,
        dataset_.url() + ": " + std::to_string(report_.missing_bytes) + " of " +
            std::to_string(report_.total_bytes) + " bytes cannot be kept in the cache " +
            cache_.directory() +
            ": what others have pinned or need earlier takes the room, its disk is full or "
            "failing (cache.failures), or memory= is too small for one of its reads");
  }

  const FillReport& report() const noexcept { return report_; }
  SubmitQueue& queue() noexcept { return queue_; }

 private:
  /// Half of what there is, so that one comes while another is written.
  std::uint64_t largest_request() const {
    const std::uint64_t bytes = std::min(options_.memory_bytes, cache_.write_room_bytes()) / 2;
    return std::max(bytes, kLeastRequestBytes);
  }

  void list_wants() {
    wants_ = options_.wants;
    if (!wants_.empty()) return;
    for (std::uint32_t block = 0; block < dataset_.block_count(); ++block)
      wants_.push_back({.block = block, .need = block});
  }

  /// Requests of the blocks that are wanted, in their order.
  template <class Visit>
  void each_request(const Visit& visit) const {
    for (const FillOptions::Want& want : wants_)
      for (const Extent& extent : requests_of(want.block)) visit(extent);
  }

  std::vector<Extent> requests_of(std::uint32_t block) const {
    std::vector<Extent> extents;
    std::vector<read::CutObject> objects;
    dataset_.append_extents(block, 0, dataset_.block(block).sample_count, extents);
    read::cut_requests(rule_, extents, objects);
    std::erase_if(extents, [](const Extent& e) { return e.length_bytes == 0 || e.etag.empty(); });
    return extents;
  }

  bool is_held(const Extent& extent) const {
    return handle_.holds(extent.key, extent.etag, extent.offset_bytes, extent.length_bytes);
  }

  /// Counts what is wanted, and tells the cache when it is needed.
  Status survey() {
    std::vector<ForeseenRead> plan;
    for (const FillOptions::Want& want : wants_) {
      for (const Extent& extent : requests_of(want.block)) {
        report_.total_bytes += extent.length_bytes;
        report_.file_bytes += cache_.stored_bytes(extent.length_bytes);
        // Needed then before it is read, and after.
        if (want.need != ForeseenRead::kNever)
          plan.push_back({extent.key, extent.etag, extent.offset_bytes, extent.length_bytes,
                          want.need, want.need});
      }
      if (stop_.stop_requested()) return Status(Code::kCancelled, "cancelled");
    }
    if (report_.total_bytes == 0 && !wants_.empty())
      return Status(Code::kInvalidArgument,
                    dataset_.url() +
                        ": a cache cannot keep this dataset: its store tells no "
                        "versions, or its own package reads it");
    const std::uint64_t capacity = cache_.capacity_bytes();
    if (options_.is_all_required && report_.file_bytes > capacity)
      return Status(Code::kExhausted,
                    dataset_.url() + ": all of it takes " + std::to_string(report_.file_bytes) +
                        " bytes of files, and the cache " + cache_.directory() + " has room for " +
                        std::to_string(capacity) +
                        " (cache_limit, or what is free on its disk): raise that, or read it with "
                        "cache_mode=\"cache\" or \"lazy\"");
    handle_.foresee(plan, handle_.read_count());
    return {};
  }

  /// The places of wants_ in the order in which this share does them: its own forwards, those of
  /// the others backwards, so that two meet where one of them ends.
  std::vector<std::uint32_t> own_walk() const {
    std::vector<std::uint32_t> walk;
    walk.reserve(wants_.size());
    const auto count = static_cast<std::uint32_t>(wants_.size());
    for (std::uint32_t i = options_.share; i < count; i += options_.share_count) walk.push_back(i);
    for (std::uint32_t i = count; options_.share_count > 1 && i-- > 0;)
      if (i % options_.share_count != options_.share) walk.push_back(i);
    return walk;
  }

  Status walk(std::vector<Extent>& left) {
    const bool is_first = again_.empty();
    const std::vector<std::uint32_t> places = is_first ? own_walk() : std::vector<std::uint32_t>();
    std::vector<Extent> next = std::exchange(again_, {});
    std::size_t place = 0;
    std::size_t at = 0;
    while (true) {
      while (at == next.size() && place < places.size()) {
        next = requests_of(wants_[places[place++]].block);
        at = 0;
      }
      const bool has_next = at < next.size() && !is_full_;
      if (has_next && is_held(next[at])) {
        if (is_first) report_.held_bytes += next[at].length_bytes;
        ++at;
        tell(false);
        if (stop_.stop_requested()) return Status(Code::kCancelled, "cancelled");
        continue;
      }
      if (has_next && may_begin(next[at].length_bytes)) {
        HEADRACE_TRY(begin(next[at++]));
        continue;
      }
      if (!has_next && out_.empty()) break;
      HEADRACE_TRY(take());
      const bool is_held_up = out_.empty() && group_.size() >= kSmallGroup;
      if (group_.size() >= kGroup || is_held_up) look_at_group(left);
    }
    look_at_group(left);
    return {};
  }

  /// With all that is not known to be kept, and some more.
  bool is_nearly_full(std::uint64_t more_bytes) const {
    std::uint64_t bytes = cache_.used_bytes() + cache_.stored_bytes(more_bytes);
    for (const Extent& extent : out_) bytes += cache_.stored_bytes(extent.length_bytes);
    for (const Extent& extent : group_) bytes += cache_.stored_bytes(extent.length_bytes);
    const std::uint64_t capacity = cache_.capacity_bytes();
    return bytes > capacity - capacity / kFullShare;
  }

  bool may_begin(std::uint64_t bytes) const {
    if (options_.may_read && !options_.may_read()) return false;
    // Where it is not sure that there is room, a few at a time.
    const std::size_t unknown = out_.size() + group_.size();
    if (!options_.is_all_required && unknown >= kSmallGroup && is_nearly_full(bytes)) return false;
    if (out_.empty()) return true;
    return out_.size() < kMostInFlight && out_bytes_ + bytes <= options_.memory_bytes &&
           waiting_bytes_ + cache_.waiting_bytes_of(bytes) <= cache_.write_room_bytes();
  }

  Status begin(const Extent& extent) {
    const std::uint64_t waiting = cache_.waiting_bytes_of(extent.length_bytes);
    if (out_.empty() && cache_.write_room_bytes() < waiting) cache_.flush();
    HEADRACE_TRY_ASSIGN(Slab slab, pool_.try_acquire(extent.length_bytes));
    Request request;
    request.key = extent.key;
    request.etag = extent.etag;
    request.offset_bytes = extent.offset_bytes;
    request.length_bytes = extent.length_bytes;
    request.slab = std::move(slab);
    request.deadline = system_clock().now() + options_.read_timeout;
    request.tag = next_tag_;
    out_.push_back(extent);
    tags_.push_back(next_tag_++);
    out_bytes_ += extent.length_bytes;
    waiting_bytes_ += waiting;
    queue_.push(std::move(request));
    queue_.flush();
    return {};
  }

  Status take() {
    const TimePoint until = system_clock().now() + kPause;
    HEADRACE_TRY_ASSIGN(const std::size_t count, queue_.wait(done_, until, stop_));
    for (Completion& completion : std::span(done_).first(count)) {
      const auto found = std::find(tags_.begin(), tags_.end(), completion.tag);
      const auto index = found - tags_.begin();
      const Extent extent = out_[static_cast<std::size_t>(index)];
      out_.erase(out_.begin() + index);
      tags_.erase(found);
      out_bytes_ -= extent.length_bytes;
      waiting_bytes_ -= cache_.waiting_bytes_of(extent.length_bytes);
      const bool came = completion.status.ok() && !completion.was_cached;
      const bool was_there = completion.status.ok() && completion.was_cached;
      Status status = std::move(completion.status);
      completion = Completion();
      HEADRACE_TRY(std::move(status));
      if (was_there) report_.held_bytes += extent.length_bytes;
      if (!came) continue;
      report_.fetched_bytes += extent.length_bytes;
      group_.push_back(extent);
    }
    tell(false);
    return {};
  }

  void look_at_group(std::vector<Extent>& left) {
    if (group_.empty()) return;
    cache_.flush();
    std::size_t lost = 0;
    for (const Extent& extent : group_) {
      if (is_held(extent)) continue;
      ++lost;
      left.push_back(extent);
    }
    if (!options_.is_all_required && 2 * lost > group_.size()) is_full_ = true;
    group_.clear();
  }

  void tell(bool is_last) {
    if (!options_.progress) return;
    const TimePoint now = system_clock().now();
    if (!is_last && now < next_report_) return;
    next_report_ = now + kReportPause;
    options_.progress(report_);
  }

  const Dataset& dataset_;
  Store& handle_;
  Cache& cache_;
  const FillOptions& options_;
  const std::stop_token stop_;
  const read::CutRule rule_;
  SlabPool& pool_;
  SubmitQueue queue_;
  std::vector<FillOptions::Want> wants_;
  std::vector<Extent> again_;  ///< What a round has left to the next.
  std::vector<Extent> out_;    ///< Under way, with their tags.
  std::vector<std::uint64_t> tags_;
  std::uint64_t next_tag_ = 0, out_bytes_ = 0;
  std::uint64_t waiting_bytes_ = 0;  ///< Of out_, when they have come.
  std::array<Completion, kMostInFlight> done_;
  std::vector<Extent> group_;  ///< What came, and is looked for when the cache has written it.
  bool is_full_ = false;
  TimePoint next_report_{};
  FillReport report_;
};

Result<FillReport> fill(const Dataset& dataset, Store& handle, Cache& cache,
                        const FillOptions& options, const std::stop_token& stop) {
  if (!handle.wants_foresight())
    return Status(Code::kInvalidArgument, handle.url() + ": its reads go through no cache");
  HEADRACE_TRY_ASSIGN(const auto pool, SlabPool::create({.limit_bytes = kPoolBytes}));
  Fill work({dataset, handle, cache, *pool}, options, stop);
  Status status = work.run();
  if (!status.ok()) handle.stop();
  work.queue().drain();
  if (!status.ok()) return status;
  return work.report();
}

}  // namespace

std::vector<FillOptions::Want> order_wants(std::span<const std::uint64_t> needs) {
  std::vector<FillOptions::Want> wants;
  for (std::uint32_t block = 0; block < needs.size(); ++block) {
    if (needs[block] >= UINT64_MAX) continue;
    constexpr std::uint64_t kLast = ForeseenRead::kNever - 1;
    wants.push_back(
        {.block = block, .need = static_cast<std::uint32_t>(std::min(needs[block], kLast))});
  }
  std::stable_sort(wants.begin(), wants.end(),
                   [](const auto& a, const auto& b) { return a.need < b.need; });
  return wants;
}

Result<FillReport> fill_cache(const Dataset& dataset, Store& store, Cache& cache,
                              const FillOptions& options, const std::stop_token& stop) {
  HEADRACE_TRY_ASSIGN(const auto handle, store.new_handle());
  return fill(dataset, *handle, cache, options, stop);
}

BackgroundFill::BackgroundFill(std::shared_ptr<const Dataset> dataset,
                               std::unique_ptr<Store> handle, std::shared_ptr<Cache> cache,
                               std::function<Result<FillOptions>(const std::stop_token&)> plan)
    : dataset_(std::move(dataset)),
      cache_(std::move(cache)),
      handle_(std::move(handle)),
      plan_(std::move(plan)),
      thread_([this](const std::stop_token& stop) {
        Status status = run(stop);
        {
          std::lock_guard lock(mutex_);
          status_ = std::move(status);
        }
        is_over_.store(true);
      }) {}

Status BackgroundFill::run(const std::stop_token& stop) {
  HEADRACE_TRY_ASSIGN(FillOptions options, plan_(stop));
  options.progress = [this](const FillReport& report) {
    std::lock_guard lock(mutex_);
    report_ = report;
  };
  const auto report = fill(*dataset_, *handle_, *cache_, options, stop);
  return report ? Status() : report.error().clone();
}

void BackgroundFill::stop() noexcept {
  thread_.request_stop();
  if (thread_.joinable()) thread_.join();
}

FillReport BackgroundFill::report() const {
  std::lock_guard lock(mutex_);
  return report_;
}

Status BackgroundFill::status() const {
  std::lock_guard lock(mutex_);
  return status_.clone();
}

}  // namespace headrace
