// Invariants:
// - Whoever reads never waits for whoever writes: what is kept is copied, sealed by a worker and
//   handed to the engine; what finds no memory is left out.
// - No failure of the engine reaches a reader: all outcomes but one are misses.
// - A flight ends when its extent can be found, or will not be kept; a claim with it.
#include "tier/remote_tier.h"

#include <cstring>
#include <utility>

namespace headrace::tier {
namespace {

/// They seal, and look again.
constexpr std::size_t kWorkers = 2;
constexpr std::size_t kQueue = 16384;
constexpr std::uint64_t kMostBufferBytes = std::uint64_t{64} << 30;

Tier::Found found_by(RemoteCache::Outcome outcome) noexcept {
  if (outcome == RemoteCache::Outcome::kDone) return Tier::Found::kAll;
  return outcome == RemoteCache::Outcome::kTaken ? Tier::Found::kTaken : Tier::Found::kNothing;
}

}  // namespace

struct RemoteTier::Write {
  ExtentInfo info;
  Slab slab;
  Flight flight;
};

Result<std::shared_ptr<RemoteTier>> RemoteTier::create(std::unique_ptr<RemoteCache> engine,
                                                       const Options& options) {
  std::shared_ptr<RemoteTier> tier(new RemoteTier(std::move(engine), options));
  HEADRACE_TRY_ASSIGN(tier->buffers_, SlabPool::create({.limit_bytes = kMostBufferBytes}));
  return tier;
}

RemoteTier::RemoteTier(std::unique_ptr<RemoteCache> engine, const Options& options)
    : options_(options),
      clock_(options.clock != nullptr ? *options.clock : system_clock()),
      prefix_("cache." + std::string(engine->kind()) + "_"),
      buffer_bytes_(options.buffer_bytes),
      engine_(std::move(engine)),
      workers_(std::make_unique<ThreadPool>(kWorkers, kQueue)),
      delayed_(std::make_unique<DelayedTasks>(*workers_)) {}

RemoteTier::~RemoteTier() {
  delayed_.reset();
  workers_.reset();  // Seals what was kept.
  // engine_ goes as a member: reset() would forget it first, and end_flight() calls it until it has
  // ended.
}

void RemoteTier::allow_buffers(std::uint64_t bytes) noexcept {
  std::uint64_t known = buffer_bytes_.load();
  while (known < bytes && !buffer_bytes_.compare_exchange_weak(known, bytes)) {
  }
}

void RemoteTier::flush() {
  MutexLock lock(writes_mutex_);
  while (writes_pending_ > 0) lock.wait(writes_done_);
}

// --- reading ---

void RemoteTier::read(const ExtentInfo& wanted, std::span<std::byte> out, TimePoint deadline,
                      Done done) {
  if (!fits_remote_header(wanted)) return done(Found::kNothing, 0);
  if (out.size() >= Pace::kLeastBytes && pace_.prefers_store(clock_.now())) {
    passed_bytes_.add(out.size());
    return done(Found::kTooSlow, 0);
  }
  engine_->get(
      {.extent = wanted,
       .out = out,
       .deadline = deadline,
       .claims = has_room(wanted),
       .done = [this, wanted, done = std::move(done)](Outcome outcome, std::uint64_t object_size) {
         end_read(wanted, outcome);
         done(found_by(outcome), object_size);
       }});
}

void RemoteTier::end_read(const ExtentInfo& extent, Outcome outcome) {
  switch (outcome) {
    case Outcome::kDone:
      hits_.add();
      hit_bytes_.add(extent.name.length_bytes);
      return;
    case Outcome::kClaimed:
      return note_claim(extent);
    case Outcome::kCorrupt:
      corrupt_.add();
      engine_->replace(extent.name);
      return;
    case Outcome::kFailed:
    case Outcome::kRefused:
      failures_.add();
      return;
    case Outcome::kMissing:
    case Outcome::kTaken:
    case Outcome::kResting:
      return;
  }
}

RemoteTier::Flight RemoteTier::begin_flight(const ExtentName& extent) {
  MutexLock lock(flights_mutex_);
  if (!flights_.try_emplace(extent).second) return {};
  return {*this, extent};
}

void RemoteTier::note_claim(const ExtentInfo& extent) {
  {
    MutexLock lock(flights_mutex_);
    const auto found = flights_.find(extent.name);
    if (found != flights_.end()) {
      found->second = extent;
      return;
    }
  }
  engine_->release(extent);  // Nobody is going to bring it.
}

void RemoteTier::forget_claim(const ExtentName& extent) {
  MutexLock lock(flights_mutex_);
  if (const auto found = flights_.find(extent); found != flights_.end()) found->second.reset();
}

void RemoteTier::end_flight(const ExtentName& extent) {
  std::optional<ExtentInfo> claimed;
  {
    MutexLock lock(flights_mutex_);
    claimed = std::move(flights_[extent]);
    flights_.erase(extent);
  }
  if (claimed) engine_->release(*claimed);
}

// --- writing ---

std::size_t RemoteTier::stored_bytes(const ExtentInfo& info) const noexcept {
  const ExtentParts parts(info.name.length_bytes, engine_->part_bytes());
  return info.name.length_bytes + parts.count() * remote_header_bytes(info);
}

bool RemoteTier::has_room(const ExtentInfo& info) const noexcept {
  return buffers_->used_bytes() + SlabPool::charged_bytes(stored_bytes(info)) <=
         buffer_bytes_.load();
}

void RemoteTier::keep(ExtentInfo info, std::span<const std::byte> data, Flight flight,
                      const Slab& slab) {
  static_cast<void>(slab);  // What is sent has headers between its parts.
  // Two at a time may both find room for one: off by an extent for each thread that reads.
  if (!fits_remote_header(info) || !has_room(info)) return skipped_bytes_.add(data.size());
  const ExtentParts parts(data.size(), engine_->part_bytes());
  const std::size_t header = remote_header_bytes(info);
  auto copy = buffers_->try_acquire(stored_bytes(info));
  if (!copy) return skipped_bytes_.add(data.size());
  auto out = copy->bytes();
  for (std::uint64_t i = 0; i < parts.count(); ++i) {
    const ExtentPart part = parts.part(i);
    std::memcpy(out.data() + header, data.data() + part.from_bytes, part.length_bytes);
    out = out.subspan(header + part.length_bytes);
  }
  auto job = std::make_shared<Write>(
      Write{.info = std::move(info), .slab = *std::move(copy), .flight = std::move(flight)});
  {
    MutexLock lock(writes_mutex_);
    ++writes_pending_;
  }
  if (!workers_->submit([this, job] { write(job); })) end_write(*job, Outcome::kResting);
}

void RemoteTier::write(const std::shared_ptr<Write>& job) {
  const ExtentParts parts(job->info.name.length_bytes, engine_->part_bytes());
  const std::size_t header = remote_header_bytes(job->info);
  auto at = job->slab.bytes();
  for (std::uint64_t i = 0; i < parts.count(); ++i) {
    const ExtentPart part = parts.part(i);
    make_remote_header(job->info, part.from_bytes, at.subspan(header, part.length_bytes),
                       at.first(header));
    at = at.subspan(header + part.length_bytes);
  }
  engine_->put({.extent = job->info,
                .slab = std::move(job->slab),
                .done = [this, job](Outcome outcome, std::uint64_t) {
                  if (outcome == Outcome::kDone) forget_claim(job->info.name);
                  job->flight = Flight();  // Whoever waits for it finds it now.
                  end_write(*job, outcome);
                }});
}

void RemoteTier::end_write(const Write& job, Outcome outcome) {
  const std::uint64_t bytes = job.info.name.length_bytes;
  (outcome == Outcome::kDone ? written_bytes_ : skipped_bytes_).add(bytes);
  if (outcome == Outcome::kFailed || outcome == Outcome::kRefused) failures_.add();
  MutexLock lock(writes_mutex_);
  if (--writes_pending_ == 0) writes_done_.notify_all();
}

void RemoteTier::append_metrics(MetricList& out) const {
  const auto counter = [&](const char* name, std::string_view unit, const Counter& value) {
    append_counter(out, prefix_ + name, unit, value.value());
  };
  counter("hits", "reads", hits_);
  counter("hit_bytes", "bytes", hit_bytes_);
  counter("misses", "reads", misses_);
  counter("miss_bytes", "bytes", miss_bytes_);
  counter("passed_bytes", "bytes", passed_bytes_);
  counter("waits", "reads", waits_);
  counter("written_bytes", "bytes", written_bytes_);
  counter("skipped_bytes", "bytes", skipped_bytes_);
  counter("corrupt", "extents", corrupt_);
  counter("failures", "calls", failures_);
}

}  // namespace headrace::tier
