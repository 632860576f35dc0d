// Invariants:
// - All but inbox_ and is_stopping_ belongs to the thread. Others push and wake the store.
// - A job is in waiting_ or in under_way_, by its tag, until its one end. Of those under way at
//   most one is still in the queue, where it can be taken back: what waits for the store to take
//   more keeps the order it came in, and is looked at again before it is asked for.
#include "tier/store_cache.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "store/submit_queue.h"
#include "tier/extent_name.h"
#include "tier/rest.h"

namespace headrace::tier {
namespace {

/// What is under way when the last user goes may take so long.
constexpr std::chrono::seconds kStopPatience{2};
/// Extents that are known to be broken, and not replaced yet.
constexpr std::size_t kMostBroken = 10'000;

struct Job {
  RemoteCache::Get get;  // Of a put: empty.
  RemoteCache::Put put;  // Of a get: empty.
  bool is_put = false;
  bool is_conditional = false;  // A put that leaves alone what is there.
  std::string key;
  const ExtentInfo& extent() const noexcept { return is_put ? put.extent : get.extent; }
};

class StoreCache final : public RemoteCache {
 public:
  StoreCache(std::unique_ptr<Store> store, std::unique_ptr<SlabPool> pool)
      : store_(std::move(store)),
        pool_(std::move(pool)),
        queue_(*store_),
        thread_([this] { run(); }) {}

  ~StoreCache() override {
    {
      MutexLock lock(mutex_);
      is_stopping_ = true;
    }
    store_->wake();
    thread_.join();
    store_.reset();  // Before the pool of its slabs.
  }

  void get(Get&& get) override {
    Job job;
    job.get = std::move(get);
    push(std::move(job));
  }
  void put(Put&& put) override {
    Job job;
    job.put = std::move(put);
    job.is_put = true;
    push(std::move(job));
  }
  void release(const ExtentInfo&) override {}  // It knows no claims.
  void replace(const ExtentName& extent) override {
    MutexLock lock(mutex_);
    if (broken_.size() < kMostBroken) broken_.insert(extent);
  }
  std::uint64_t part_bytes() const noexcept override {
    return std::min<std::uint64_t>(store_->traits().max_put_bytes - kMostRemoteHeaderBytes,
                                   UINT32_MAX);  // A header's field.
  }
  std::string_view kind() const noexcept override { return "store"; }

 private:
  void push(Job job) {
    job.key = "v1/" + extent_path(job.extent().name);
    {
      MutexLock lock(mutex_);
      job.is_conditional = job.is_put && broken_.erase(job.extent().name) == 0;
      inbox_.push_back(std::move(job));
    }
    store_->wake();
  }

  void run();
  /// False: it is over.
  bool take_inbox();
  void start_all();
  /// False: it has to wait.
  bool start(Job& job);
  Request request_of(Job& job, Slab slab) const;
  /// Of what the store has not taken, ends what nobody would wait for any longer.
  void drop_hasty();
  /// Ends what the store has not taken.
  void give_up(std::vector<Request> unsent, Outcome outcome);
  /// When to look round though nothing has come.
  TimePoint next_look() const;
  void end(Completion& completion);
  Outcome outcome_of(const Job& job, const Completion& completion,
                     std::uint64_t& object_size_bytes) const;
  void note(Code code);
  static void finish(Job& job, Outcome outcome, std::uint64_t object_size_bytes);
  std::unique_ptr<Store> store_;
  const std::unique_ptr<SlabPool> pool_;
  Rest rest_;
  bool has_conditions_ = true;   // The store knows If-None-Match.
  SubmitQueue queue_;            // Over *store_.
  TimePoint unsent_deadline_{};  // Of the request in the queue, if there is one.
  std::deque<Job> waiting_;
  std::map<std::uint64_t, Job> under_way_;
  std::uint64_t next_tag_ = 0;
  std::optional<TimePoint> stop_by_;

  Mutex mutex_;
  std::vector<Job> inbox_ HEADRACE_GUARDED_BY(mutex_);
  std::set<ExtentName> broken_ HEADRACE_GUARDED_BY(mutex_);
  bool is_stopping_ HEADRACE_GUARDED_BY(mutex_) = false;
  std::thread thread_;  // Last: it uses all of the above.
};

void StoreCache::run() {
  std::array<Completion, 16> done;
  while (take_inbox()) {
    drop_hasty();
    start_all();
    if (waiting_.empty() && under_way_.empty() && stop_by_) continue;
    const auto count = queue_.wait(done, next_look());
    if (!count) give_up(queue_.take_back_all(), Outcome::kFailed);
    for (std::size_t i = 0; count && i < *count; ++i) end(done[i]);
  }
}

bool StoreCache::take_inbox() {
  std::vector<Job> taken;
  bool is_stopping = false;
  {
    MutexLock lock(mutex_);
    taken.swap(inbox_);
    is_stopping = is_stopping_;
  }
  for (Job& job : taken) waiting_.push_back(std::move(job));
  if (!is_stopping) return true;
  const TimePoint now = system_clock().now();
  if (!stop_by_) stop_by_ = now + kStopPatience;
  if (now >= *stop_by_) {
    store_->stop();
    give_up(queue_.take_back_all(), Outcome::kFailed);
    for (Job& job : waiting_) finish(job, Outcome::kFailed, 0);
    waiting_.clear();
    stop_by_ = TimePoint::max();
  }
  return !waiting_.empty() || !under_way_.empty();
}

TimePoint StoreCache::next_look() const {
  const TimePoint end = stop_by_.value_or(TimePoint::max());
  return queue_.unsent() > 0 ? std::min(end, unsent_deadline_) : end;
}

void StoreCache::drop_hasty() {
  const TimePoint now = system_clock().now();
  give_up(queue_.take_back([&](const Request& request) { return request.deadline <= now; }),
          Outcome::kResting);
}

void StoreCache::give_up(std::vector<Request> unsent, Outcome outcome) {
  for (Request& request : unsent) {
    const auto found = under_way_.find(request.tag);
    Job job = std::move(found->second);
    under_way_.erase(found);
    request.slab = Slab();
    rest_.give_back();
    finish(job, outcome, 0);
  }
}

void StoreCache::start_all() {
  while (!waiting_.empty() && queue_.unsent() == 0 && start(waiting_.front())) waiting_.pop_front();
}

bool StoreCache::start(Job& job) {
  const TimePoint now = system_clock().now();
  const std::size_t size = remote_header_bytes(job.extent()) + job.extent().name.length_bytes;
  const bool is_hasty = !job.is_put && job.get.deadline <= now;
  const bool fits = job.is_put || SlabPool::charged_bytes(size) <= pool_->limit_bytes();
  if (is_hasty || !fits || !rest_.may_try(now)) {
    finish(job, Outcome::kResting, 0);
    return true;
  }
  Slab slab;
  if (job.is_put) {
    slab = std::move(job.put.slab);
    job.is_conditional = job.is_conditional && has_conditions_;
  } else {
    auto room = pool_->try_acquire(size);
    if (!room) {
      rest_.give_back();
      return false;
    }
    slab = *std::move(room);
  }
  // The key must not move while the store has it.
  const auto place = under_way_.emplace(next_tag_, std::move(job)).first;
  Request request = request_of(place->second, std::move(slab));
  ++next_tag_;
  unsent_deadline_ = request.deadline;
  queue_.push(std::move(request));
  queue_.flush();
  return true;
}

Request StoreCache::request_of(Job& job, Slab slab) const {
  Request request;
  request.op = job.is_put ? Op::kPut : Op::kGet;
  request.key = job.key;
  request.if_absent = job.is_conditional;
  request.length_bytes = slab.bytes().size();
  request.slab = std::move(slab);
  if (!job.is_put) request.deadline = job.get.deadline;
  request.tag = next_tag_;
  return request;
}

void StoreCache::end(Completion& completion) {
  const auto found = under_way_.find(completion.tag);
  Job job = std::move(found->second);
  under_way_.erase(found);
  const Code code = completion.status.code();
  note(code);
  const bool is_unknown = code == Code::kUnsupported || code == Code::kInvalidArgument;
  if (job.is_conditional && is_unknown) {
    job.is_conditional = has_conditions_ = false;
    job.put.slab = std::move(completion.slab);
    waiting_.push_front(std::move(job));
    return;
  }
  std::uint64_t object_size = 0;
  const Outcome outcome = outcome_of(job, completion, object_size);
  completion.slab = Slab();
  finish(job, outcome, object_size);
}

void StoreCache::note(Code code) {
  const bool has_answered = code == Code::kOk || code == Code::kNotFound ||
                            code == Code::kChanged || code == Code::kCorrupt ||
                            code == Code::kUnsupported || code == Code::kInvalidArgument;
  if (has_answered) return rest_.note_success();
  rest_.note_failure(system_clock().now());
}

RemoteCache::Outcome StoreCache::outcome_of(const Job& job, const Completion& completion,
                                            std::uint64_t& object_size_bytes) const {
  const Code code = completion.status.code();
  // Somebody else has put it.
  if (job.is_put && (code == Code::kOk || code == Code::kChanged)) return Outcome::kDone;
  if (code == Code::kNotFound) return job.is_put ? Outcome::kFailed : Outcome::kMissing;
  if (code == Code::kCorrupt) return Outcome::kCorrupt;
  if (code != Code::kOk) return Outcome::kFailed;
  const auto all = completion.slab.bytes();
  const std::size_t header = remote_header_bytes(job.extent());
  const auto data = all.subspan(header);
  const bool is_longer =
      completion.object_size_bytes != 0 && completion.object_size_bytes != all.size();
  const auto size = check_remote_header(job.extent(), 0, data, all.first(header));
  if (!size || is_longer) return Outcome::kCorrupt;
  object_size_bytes = *size;
  std::memcpy(job.get.out.data(), data.data(), data.size());
  return Outcome::kDone;
}

void StoreCache::finish(Job& job, Outcome outcome, std::uint64_t object_size_bytes) {
  if (!job.is_put) return job.get.done(outcome, object_size_bytes);
  job.put.slab = Slab();
  job.put.done(outcome, 0);
}

}  // namespace

Result<std::unique_ptr<RemoteCache>> open_store_cache(std::unique_ptr<Store> store,
                                                      std::uint64_t read_bytes) {
  HEADRACE_TRY_ASSIGN(auto pool, SlabPool::create({.limit_bytes = read_bytes}));
  return std::unique_ptr<RemoteCache>(
      std::make_unique<StoreCache>(std::move(store), std::move(pool)));
}

}  // namespace headrace::tier
