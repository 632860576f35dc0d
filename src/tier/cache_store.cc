// A request's way: submit() gives it a slot; a reader's thread looks for its bytes in files. What
// it finds is a completion; what it does not find goes to the store inside, once for all who want
// it at the time, and from there, in wait(), to the caller and to the cache.
//
// Invariants:
// - Every accepted request has a slot from submit() until its completion is handed out, and exactly
//   one place at a time: with a reader, waiting for another's fetch, on its way into the store, in
//   the store, or done. Whoever has it is the only one to touch its request.
// - wait() sleeps in the store's wait(). Whoever makes something for it to take wakes the store; a
//   wake of the caller's own is remembered apart, as only that ends wait() with nothing.
// - A read that names no version is first given the one that head() tells, by threads of this store
//   that do nothing else. Where that has gone by the time it is asked for, the read goes to the
//   store as the caller made it: nobody sees kChanged who named no version.
// - A handle dies after its last slot: readers' tasks point to it.
#include "tier/cache_store.h"

#include <algorithm>
#include <array>
#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/mutex.h"
#include "headrace/forwarding_store.h"
#include "store/submit_queue.h"
#include "tier/disk_cache.h"
#include "tier/versions.h"

namespace headrace {
namespace {

using tier::ExtentInfo;
using tier::ExtentName;
using tier::Tier;

/// Reads that a plan which comes late is told of.
constexpr std::size_t kRemembered = 4096;
/// How often it is looked whether somebody else has fetched an extent.
constexpr std::chrono::milliseconds kFlightPause{2};
/// How long: somebody who is stopped, or has a slow line, holds nobody up for longer.
constexpr std::chrono::milliseconds kFlightPatience{3000};

class CacheHandle final : public ForwardingStore {
 public:
  CacheHandle(std::unique_ptr<Store> inner, std::shared_ptr<Tier> tier,
              std::shared_ptr<tier::Versions> versions, std::size_t accept_limit)
      : ForwardingStore(std::move(inner)),
        tier_(std::move(tier)),
        versions_(std::move(versions)),
        accept_limit_(accept_limit),
        origin_(tier::origin_of_kept(this->inner())) {}

  ~CacheHandle() override {
    stop();
    std::array<Completion, 16> dying;
    while (slot_count() > 0) static_cast<void>(wait(dying, TimePoint::max(), {}));
  }

  std::size_t submit(std::span<Request> requests) override {
    std::size_t taken = 0;
    for (Request& request : requests) {
      if (!accept(request)) break;
      ++taken;
    }
    return taken;
  }

  std::size_t wait(std::span<Completion> out, TimePoint until, std::stop_token stop) override;

  void wake() noexcept override {
    {
      MutexLock lock(mutex_);
      is_woken_ = true;
    }
    changed_.notify_all();
    inner().wake();
  }

  void cancel(std::uint64_t tag) override {
    // Under the lock: the number of a slot that is free again may be another request's.
    MutexLock lock(mutex_);
    for (std::size_t i = 0; i < slots_.size(); ++i) {
      if (!slots_[i].is_used || slots_[i].tag != tag) continue;
      slots_[i].is_cancelled = true;
      if (slots_[i].is_inside)
        inner().cancel(i);
      else
        tier_->hurry(&slots_[i]);
    }
    drop_cancelled();
    inner().wake();
  }

  void stop() noexcept override {
    {
      MutexLock lock(mutex_);
      is_stopped_ = true;
      for (Slot& slot : slots_) {
        slot.is_cancelled = slot.is_used;
        if (slot.is_used && !slot.is_inside) tier_->hurry(&slot);
      }
      drop_cancelled();
    }
    changed_.notify_all();
    stop_.request_stop();
    inner().stop();
    inner().wake();
  }

  Status remove(const std::string& key, const CallOptions& call) override {
    return after_write(key, [&] { return inner().remove(key, call); });
  }
  std::vector<Status> remove_many(std::span<const std::string> keys,
                                  const CallOptions& call) override {
    auto statuses = inner().remove_many(keys, call);
    for (const std::string& key : keys) versions_->forget(key);
    return statuses;
  }
  Result<ObjectInfo> copy(const std::string& from_key, const std::string& to_key,
                          const CallOptions& call) override {
    return after_write(to_key, [&] { return inner().copy(from_key, to_key, call); });
  }
  Result<ObjectInfo> set_storage_class(const std::string& key, const std::string& storage_class,
                                       const CallOptions& call) override {
    return after_write(key, [&] { return inner().set_storage_class(key, storage_class, call); });
  }
  Result<ObjectInfo> complete_upload(const std::string& key, const std::string& upload_id,
                                     std::span<const UploadedPart> parts,
                                     const CallOptions& call) override {
    return after_write(key, [&] { return inner().complete_upload(key, upload_id, parts, call); });
  }

  bool wants_foresight() const noexcept override { return tier_->wants_plans(); }
  std::uint64_t read_count() const noexcept override {
    MutexLock lock(mutex_);
    return read_count_;
  }
  void foresee(std::span<const ForeseenRead> reads, std::uint64_t since) override {
    std::vector<tier::PlanEntry> entries;
    entries.reserve(reads.size());
    for (const ForeseenRead& read : reads) {
      if (read.length_bytes == 0 || read.etag.empty()) continue;
      entries.push_back({.range = {tier::object_id(origin_, object_url(read.key), read.etag),
                                   read.offset_bytes, read.length_bytes},
                         .first = read.first,
                         .second = read.second});
    }
    auto plan = tier_->publish_plan(std::move(entries));
    MutexLock lock(mutex_);
    // What was read while the plan was made.
    const std::uint64_t first =
        std::max(since, read_count_ - std::min<std::uint64_t>(read_count_, kRemembered));
    for (std::uint64_t i = first; plan && i < read_count_; ++i)
      plan->note_read(recent_[i % kRemembered]);
    plan_.swap(plan);
  }

  bool holds(std::string_view key, std::string_view etag, std::uint64_t offset_bytes,
             std::uint64_t length_bytes) override {
    if (etag.empty() || length_bytes == 0) return false;
    return tier_->holds(
        {tier::object_id(origin_, object_url(key), etag), offset_bytes, length_bytes});
  }

  void append_metrics(MetricList& out) const override {
    inner().append_metrics(out);
    tier_->append_metrics(out);
  }

 private:
  struct Slot {
    Request request;  // While no store and no completion has it.
    std::uint64_t tag = 0;
    std::string_view key, etag;
    std::string own_etag;           // Where head() told the version: `etag` is this.
    bool was_short = false;         // Request::allow_short of one that wants a version.
    std::uint64_t asked_bytes = 0;  // And its length.
    ExtentName name;
    bool is_write = false;
    bool is_kept = false;  // What comes from the store is to be kept.
    bool is_used = false;
    bool is_cancelled = false;
    bool is_inside = false;  // The store has it.
    // What Pace was told to be under way; 0: nothing.
    std::uint64_t disk_bytes = 0, store_bytes = 0;
    Tier::Flight flight;
    TimePoint submitted{}, patience{}, looked{};
  };

  Result<std::unique_ptr<Store>> wrap(std::unique_ptr<Store> handle) override {
    return std::unique_ptr<Store>(
        std::make_unique<CacheHandle>(std::move(handle), tier_, versions_, accept_limit_));
  }

  template <class Call>
  auto after_write(const std::string& key, const Call& call) -> decltype(call()) {
    auto result = call();
    versions_->forget(key);
    return result;
  }

  bool accept(Request& request);
  /// Gives a read that names no version the one that is there. False: it is to go to the store as
  /// it is.
  bool find_version(Slot& slot);
  /// What a read was before find_version().
  static void restore(Slot& slot) noexcept;
  void note_read(const ExtentName& range) HEADRACE_REQUIRES(mutex_) {
    if (recent_.size() < kRemembered) recent_.resize(kRemembered);
    recent_[read_count_++ % kRemembered] = range;
    if (plan_) plan_->note_read(range);
  }
  // Where a long read is, for Pace. `moved_bytes`: what came of it.
  void begin_disk(Slot& slot) {
    if (slot.request.length_bytes < tier::Pace::kLeastBytes) return;
    slot.disk_bytes = slot.request.length_bytes;
    tier_->pace().begin_disk(slot.disk_bytes, tier_->clock().now());
  }
  void end_disk(Slot& slot, std::uint64_t moved_bytes) {
    const std::uint64_t bytes = std::exchange(slot.disk_bytes, 0);
    if (bytes > 0) tier_->pace().end_disk(bytes, moved_bytes, tier_->clock().now());
  }
  void begin_store(Slot& slot, std::uint64_t bytes) {
    if (bytes < tier::Pace::kLeastBytes) return;
    slot.store_bytes = bytes;
    tier_->pace().begin_store(bytes, tier_->clock().now());
  }
  void end_store(Slot& slot, std::uint64_t moved_bytes) {
    const std::uint64_t bytes = std::exchange(slot.store_bytes, 0);
    if (bytes > 0) tier_->pace().end_store(bytes, moved_bytes, tier_->clock().now());
  }
  /// Completes a read that was cancelled, or whose deadline has passed. False: neither.
  bool end_if_over(std::size_t index);
  /// Asks the store for the version of a read that names none, then as look_up().
  void ask(std::size_t index);
  void look_up(std::size_t index);
  /// Looks for what is wanted, on a thread that the tier allows.
  void look(std::size_t index, Slot& slot);
  /// What it found.
  void end_look(std::size_t index, Tier::Found found, std::uint64_t object_size);
  /// Until somebody else has fetched it, or has had long enough; no longer than its deadline, or
  /// until it is cancelled.
  void wait_for_flight(std::size_t index, Slot& slot);
  /// To the store, as soon as that takes it.
  void send(std::size_t index);
  void flush() HEADRACE_REQUIRES(mutex_);
  void drop_cancelled() HEADRACE_REQUIRES(mutex_);
  void complete(std::size_t index, Status status, TimePoint began, std::uint64_t object_size);
  void finish(std::size_t index, Completion completion) HEADRACE_REQUIRES(mutex_);
  /// From the store: what it says goes on to the caller, and its bytes into the cache. False: it is
  /// asked again.
  bool take_inside(Completion& completion);
  std::size_t take_ready(std::span<Completion> out) HEADRACE_REQUIRES(mutex_);
  /// For whoever has it.
  Slot& slot_at(std::size_t index) HEADRACE_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    return slots_[index];
  }
  std::size_t slot_count() HEADRACE_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    return used_count_;
  }

  std::string describe(const Slot& slot) const {
    return "GET " + object_url(slot.key) + " [" + std::to_string(slot.name.offset_bytes) + ", " +
           std::to_string(slot.name.offset_bytes + slot.name.length_bytes) + ")";
  }

  const std::shared_ptr<Tier> tier_;
  const std::shared_ptr<tier::Versions> versions_;
  std::stop_source stop_;  // Ends head() of readers.
  const std::size_t accept_limit_;
  std::shared_ptr<tier::OwnPlan> plan_ HEADRACE_GUARDED_BY(mutex_);
  std::vector<ExtentName> recent_ HEADRACE_GUARDED_BY(mutex_);  // A ring of kRemembered.
  std::uint64_t read_count_ HEADRACE_GUARDED_BY(mutex_) = 0;
  const std::string origin_;
  mutable Mutex mutex_;
  std::condition_variable changed_;
  std::deque<Slot> slots_ HEADRACE_GUARDED_BY(mutex_);  // They do not move.
  std::vector<std::size_t> free_ HEADRACE_GUARDED_BY(mutex_);
  std::size_t used_count_ HEADRACE_GUARDED_BY(mutex_) = 0;
  std::size_t inside_count_ HEADRACE_GUARDED_BY(mutex_) = 0;
  std::vector<std::size_t> waiting_ HEADRACE_GUARDED_BY(mutex_);  // For the store to take them.
  std::deque<Completion> ready_ HEADRACE_GUARDED_BY(mutex_);
  bool is_woken_ HEADRACE_GUARDED_BY(mutex_) = false;
  bool is_stopped_ HEADRACE_GUARDED_BY(mutex_) = false;
};

bool CacheHandle::accept(Request& request) {
  const bool is_ranged = request.op == Op::kGet && !request.key.empty() &&
                         request.length_bytes > 0 &&
                         request.offset_bytes <= UINT64_MAX - request.length_bytes;
  const bool fits = request.slab_offset_bytes <= request.slab.bytes().size() &&
                    request.length_bytes <= request.slab.bytes().size() - request.slab_offset_bytes;
  const bool wants_version = request.etag.empty() &&
                             request.length_bytes >= tier_->least_unnamed_bytes() &&
                             !request.fresh_connection;
  const bool may_keep = is_ranged && fits && request.version_id.empty() &&
                        (wants_version || (!request.etag.empty() && !request.allow_short));
  const bool is_cached = may_keep && !request.wants_details;
  const bool is_asked = is_cached && wants_version;
  std::size_t index = 0;
  Slot* accepted = nullptr;
  {
    MutexLock lock(mutex_);
    if (is_stopped_ || used_count_ + ready_.size() >= accept_limit_) return false;
    if (free_.empty()) {
      free_.push_back(slots_.size());
      slots_.emplace_back();
    }
    index = free_.back();
    Slot& slot = slots_[index];
    accepted = &slot;
    slot.tag = request.tag;
    slot.key = request.key;
    slot.etag = request.etag;
    slot.own_etag.clear();
    slot.was_short = request.allow_short;
    slot.is_write = request.op == Op::kPut;
    slot.asked_bytes = request.length_bytes;
    // The store alone has details; what comes with them is kept for others.
    slot.is_kept = is_cached || (may_keep && !wants_version);
    slot.is_cancelled = slot.is_inside = false;
    slot.submitted = tier_->clock().now();
    slot.patience = {};
    if (slot.is_kept) {
      slot.name = {tier::object_id(origin_, object_url(request.key), request.etag),
                   request.offset_bytes, request.length_bytes};
    }
    if (!is_cached) {
      slot.request.slab_offset_bytes = request.slab_offset_bytes;
      request.tag = index;
      if (inner().submit({&request, 1}) == 0) {
        request.tag = slot.tag;
        return false;
      }
      if (slot.is_kept) tier_->note_miss(slot.name.length_bytes);
      slot.is_inside = true;
      ++inside_count_;
    } else {
      slot.request = std::move(request);
      slot.request.tag = index;
    }
    if (slot.is_kept && !is_asked) note_read(slot.name);
    free_.pop_back();
    slot.is_used = true;
    ++used_count_;
  }
  if (!is_cached) return true;
  begin_disk(*accepted);
  const bool is_taken = is_asked ? versions_->ask([this, index] { ask(index); })
                                 : tier_->run([this, index] { look_up(index); });
  if (is_taken) return true;
  // Too much to look for: fetched, as without a cache.
  if (is_asked) {
    MutexLock lock(mutex_);
    slots_[index].is_kept = false;
  }
  send(index);
  return true;
}

bool CacheHandle::find_version(Slot& slot) {
  auto version = versions_->find(slot.key, tier_->clock().now());
  if (!version) {
    const std::uint64_t since = versions_->forgotten_count();
    auto info = inner().head(std::string(slot.key),
                             {.deadline = slot.request.deadline, .stop = stop_.get_token()});
    if (!info || info->etag.empty()) return false;
    version = {.etag = std::move(info->etag), .size_bytes = info->size_bytes};
    versions_->note(slot.key, *version, tier_->clock().now(), since);
  }
  const std::uint64_t offset = slot.request.offset_bytes;
  if (offset >= version->size_bytes) return false;
  const std::uint64_t length = std::min(slot.asked_bytes, version->size_bytes - offset);
  if (length < slot.asked_bytes && !slot.was_short) return false;
  slot.own_etag = std::move(version->etag);
  slot.etag = slot.own_etag;
  slot.request.etag = slot.etag;
  slot.request.length_bytes = length;
  slot.request.allow_short = false;
  slot.name = {tier::object_id(origin_, object_url(slot.key), slot.etag), offset, length};
  return true;
}

void CacheHandle::restore(Slot& slot) noexcept {
  slot.is_kept = false;
  slot.request.etag = slot.etag = {};
  slot.own_etag.clear();
  slot.request.length_bytes = slot.asked_bytes;
  slot.request.allow_short = slot.was_short;
}

bool CacheHandle::end_if_over(std::size_t index) {
  Slot* slot = nullptr;
  bool is_cancelled = false;
  {
    MutexLock lock(mutex_);
    slot = &slots_[index];
    is_cancelled = slot->is_cancelled;
  }
  const TimePoint now = tier_->clock().now();
  if (is_cancelled) {
    complete(index, Status(Code::kCancelled, describe(*slot) + ": cancelled"), now, 0);
    return true;
  }
  if (slot->request.deadline > now) return false;
  complete(index, Status(Code::kDeadline, describe(*slot) + ": deadline passed"), now, 0);
  return true;
}

void CacheHandle::ask(std::size_t index) {
  if (end_if_over(index)) return;
  Slot& slot = slot_at(index);
  if (!find_version(slot)) {
    restore(slot);
    return send(index);
  }
  if (!tier_->run([this, index] { look_up(index); })) send(index);
}

void CacheHandle::look_up(std::size_t index) {
  if (end_if_over(index)) return;
  Slot& slot = slot_at(index);
  if (slot.request.fresh_connection) {
    tier_->drop(slot.name);
    return send(index);
  }
  if (tier_->looks_in_flight() && !slot.flight) {
    slot.flight = tier_->begin_flight(slot.name);
    if (!slot.flight) return wait_for_flight(index, slot);
  }
  slot.looked = tier_->clock().now();
  look(index, slot);
}

void CacheHandle::look(std::size_t index, Slot& slot) {
  const auto out =
      slot.request.slab.bytes().subspan(slot.request.slab_offset_bytes, slot.request.length_bytes);
  const ExtentInfo wanted{.name = slot.name,
                          .object_size_bytes = 0,
                          .url = object_url(slot.key),
                          .etag = std::string(slot.etag)};
  tier_->read(wanted, out, slot.request.deadline,
              [this, index](Tier::Found found, std::uint64_t object_size) {
                end_look(index, found, object_size);
              });
}

void CacheHandle::end_look(std::size_t index, Tier::Found found, std::uint64_t object_size) {
  Slot& slot = slot_at(index);
  if (found == Tier::Found::kAll) return complete(index, {}, slot.looked, object_size);
  if (found == Tier::Found::kTooSlow) {
    slot.is_kept = false;
    return send(index);
  }
  if (found == Tier::Found::kTaken) return wait_for_flight(index, slot);
  if (slot.flight) return send(index);
  slot.flight = tier_->begin_flight(slot.name);
  // Whoever had it may have ended since it was looked for.
  if (slot.flight) return look(index, slot);
  wait_for_flight(index, slot);
}

void CacheHandle::wait_for_flight(std::size_t index, Slot& slot) {
  end_disk(slot, 0);
  if (slot.patience == TimePoint()) {
    slot.patience = system_clock().now() + kFlightPatience;
    tier_->note_wait();
  }
  const TimePoint now = system_clock().now();
  if (now >= slot.patience) return send(index);
  // Who has the flight waits for another node, and asks it less and less often.
  const auto waited = now - (slot.patience - kFlightPatience);
  const auto pause = slot.flight ? std::max<TimePoint::duration>(kFlightPause, waited / 4)
                                 : TimePoint::duration(kFlightPause);
  const auto left = slot.request.deadline - tier_->clock().now();
  MutexLock lock(mutex_);  // Who cancels it hurries it, or has done so before it waits.
  tier_->run_later(slot.is_cancelled ? now : now + std::min(pause, left), &slot,
                   [this, index] { look_up(index); });
}

void CacheHandle::complete(std::size_t index, Status status, TimePoint began,
                           std::uint64_t object_size) {
  MutexLock lock(mutex_);
  Slot& slot = slots_[index];
  end_disk(slot, status.ok() ? slot.name.length_bytes : 0);
  Completion completion;
  completion.status = std::move(status);
  completion.slab = std::move(slot.request.slab);
  completion.length_bytes = completion.status.ok() ? slot.name.length_bytes : 0;
  completion.was_cached = completion.status.ok();
  if (completion.was_cached) completion.etag = slot.own_etag;
  completion.object_size_bytes = object_size;
  completion.submitted = slot.submitted;
  completion.sent = completion.first_byte = began;
  completion.finished = tier_->clock().now();
  finish(index, std::move(completion));
  // Under the lock: the handle may die once its last slot is free.
  changed_.notify_all();
  inner().wake();
}

void CacheHandle::finish(std::size_t index, Completion completion) {
  Slot& slot = slots_[index];
  completion.tag = slot.tag;
  slot.flight = Tier::Flight();
  slot.request = Request();
  slot.is_used = false;
  free_.push_back(index);
  --used_count_;
  ready_.push_back(std::move(completion));
}

void CacheHandle::send(std::size_t index) {
  MutexLock lock(mutex_);
  end_disk(slots_[index], 0);
  if (slots_[index].is_kept) tier_->note_miss(slots_[index].name.length_bytes);
  waiting_.push_back(index);
  drop_cancelled();
  flush();
  // What was cancelled meanwhile is ready now, and whoever waits does not know it.
  if (waiting_.empty() && ready_.empty()) return;
  changed_.notify_all();
  inner().wake();
}

void CacheHandle::flush() {
  std::size_t sent = 0;
  for (; sent < waiting_.size(); ++sent) {
    Slot& slot = slots_[waiting_[sent]];
    const std::uint64_t bytes = slot.request.length_bytes;
    if (inner().submit({&slot.request, 1}) == 0) break;
    begin_store(slot, bytes);
    slot.is_inside = true;
    ++inside_count_;
  }
  waiting_.erase(waiting_.begin(), waiting_.begin() + static_cast<std::ptrdiff_t>(sent));
}

void CacheHandle::drop_cancelled() {
  std::erase_if(waiting_, [&](std::size_t index) HEADRACE_REQUIRES(mutex_) {
    Slot& slot = slots_[index];
    if (!slot.is_cancelled) return false;
    Completion completion;
    completion.status = Status(Code::kCancelled, describe(slot) + ": cancelled");
    completion.slab = std::move(slot.request.slab);
    completion.submitted = slot.submitted;
    completion.finished = tier_->clock().now();
    finish(index, std::move(completion));
    return true;
  });
}

std::size_t CacheHandle::take_ready(std::span<Completion> out) {
  const std::size_t count = std::min(out.size(), ready_.size());
  for (std::size_t i = 0; i < count; ++i) {
    out[i] = std::move(ready_.front());
    ready_.pop_front();
  }
  return count;
}

bool CacheHandle::take_inside(Completion& completion) {
  const std::size_t index = completion.tag;
  ExtentName name;
  Tier::Flight flight;
  std::string key, etag;
  bool is_kept = false;
  std::size_t slab_offset = 0;
  {
    MutexLock lock(mutex_);
    HEADRACE_CHECK(index < slots_.size() && slots_[index].is_inside);
    Slot& slot = slots_[index];
    end_store(slot, completion.status.ok() ? completion.length_bytes : 0);
    if (!slot.own_etag.empty() && completion.status.code() == Code::kChanged) {
      versions_->forget(slot.key);
      restore(slot);
      slot.flight = Tier::Flight();
      slot.request.slab = std::move(completion.slab);
      slot.is_inside = false;
      --inside_count_;
      waiting_.push_back(index);
      return false;
    }
    if (slot.is_write) versions_->forget(slot.key);
    if (completion.status.ok() && !slot.own_etag.empty()) completion.etag = slot.own_etag;
    is_kept =
        slot.is_kept && completion.status.ok() && completion.length_bytes == slot.name.length_bytes;
    if (is_kept) {
      key = slot.key;
      etag = slot.etag;
    }
    name = slot.name;
    slab_offset = slot.request.slab_offset_bytes;
    flight = std::move(slot.flight);
    completion.tag = slot.tag;
    slot.request = Request();
    slot.is_used = slot.is_inside = false;
    free_.push_back(index);
    --used_count_;
    --inside_count_;
  }
  if (!is_kept) return true;
  tier_->keep({.name = name,
               .object_size_bytes = completion.object_size_bytes,
               .url = object_url(key),
               .etag = std::move(etag)},
              completion.slab.bytes().subspan(slab_offset, name.length_bytes), std::move(flight),
              completion.slab);
  return true;
}

std::size_t CacheHandle::wait(std::span<Completion> out, TimePoint until, std::stop_token stop) {
  if (out.empty()) return 0;
  while (true) {
    TimePoint slice = until;
    bool is_inner_over = false;
    {
      MutexLock lock(mutex_);
      drop_cancelled();
      flush();
      if (const std::size_t count = take_ready(out); count > 0) return count;
      if (std::exchange(is_woken_, false)) return 0;
      if (is_stopped_ && used_count_ == 0) return 0;
      if (!waiting_.empty()) slice = std::min(until, system_clock().now() + kRefusedPause);
      is_inner_over = is_stopped_ && inside_count_ == 0;
      // The store's wait() would return at once; what is left is with readers.
      if (is_inner_over)
        lock.wait_until(changed_, std::min(until, system_clock().now() + kRefusedPause));
    }
    std::size_t count = 0;
    if (!is_inner_over) count = inner().wait(out, slice, stop);
    std::size_t kept = 0;
    for (std::size_t i = 0; i < count; ++i) {
      if (!take_inside(out[i])) continue;
      if (kept != i) out[kept] = std::move(out[i]);
      ++kept;
    }
    if (kept > 0) return kept;
    if (count > 0) continue;
    MutexLock lock(mutex_);
    if (const std::size_t ready = take_ready(out); ready > 0) return ready;
    if (std::exchange(is_woken_, false) || stop.stop_requested()) return 0;
    if (until != TimePoint::max() && system_clock().now() >= until) return 0;
  }
}

}  // namespace

namespace tier {

std::string origin_of_kept(const Store& store) {
  // No server's name has a space.
  return store.origin() + (store.traits().checks_bodies ? "" : " unchecked");
}

std::unique_ptr<Store> wrap_tier(std::unique_ptr<Store> inner, std::shared_ptr<Tier> tier,
                                 std::size_t accept_limit) {
  return std::make_unique<CacheHandle>(std::move(inner), std::move(tier),
                                       std::make_shared<Versions>(), accept_limit);
}

}  // namespace tier

std::unique_ptr<Store> cache_reads(std::unique_ptr<Store> inner, std::shared_ptr<Cache> cache,
                                   std::size_t accept_limit) {
  return tier::wrap_tier(std::move(inner),
                         std::static_pointer_cast<tier::DiskCache>(std::move(cache)), accept_limit);
}

}  // namespace headrace
