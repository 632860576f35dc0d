// Invariants:
// - Room is taken in the ledger before a file is written, and given back after one is deleted:
//   whoever dies in between leaves the ledger too high, which costs room until the next count. Too
//   low it is only where somebody else has put files there, which a full look finds, too.
// - One process evicts at a time (Ledger::try_begin_eviction()), one thread in it (mutex_). Others
//   do not wait for it: they go without a place for their extent, since reading on is worth more
//   than keeping.
// - What a reader needs earlier than the extent that wants room stays (PlanBoard); pinned extents
//   stay always. So an eviction may end with nothing, and is not tried again before enough lookups
//   have changed the picture (pause_lookups_).
// - Looking is bounded: of many extents some buckets a time are looked at, and at most a
//   kEvictedOfSome-th of those goes, so what goes is among the last of all and not the last of a
//   few.
// - The ledger is corrected only from a look at everything: a part proves nothing about the sum.
#include "tier/evictor.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <utility>

#include "tier/cache_log.h"
#include "tier/extent_file.h"
#include "tier/file_time.h"

namespace headrace::tier {
namespace {

constexpr std::uint64_t kMostFloorBytes = std::uint64_t{16} << 30;
/// With more extents than so many, some of that many go: looking at a million takes a second.
constexpr std::size_t kEnoughExtents = 32'768;
/// Of those: enough at once that looking pays, few enough that they are among the last of all.
constexpr std::uint64_t kEvictedOfSome = 16;
/// Each so many evictions all are looked at, and counted where the ledger does not agree: somebody
/// may have deleted files.
constexpr std::uint64_t kFullLookEvery = 16;
/// Looking at a million extents takes a second, and others have turns, too.
constexpr std::chrono::seconds kShrinkPatience{10};
constexpr std::chrono::milliseconds kShrinkPause{1};

/// Processes look at different ones first.
std::uint32_t random_bucket() {
  std::random_device seed;
  return seed() % kBucketCount;
}

std::uint64_t default_floor(int root) {
  struct statvfs info {};
  if (::fstatvfs(root, &info) != 0) return 0;
  return std::min<std::uint64_t>(info.f_blocks * info.f_frsize / 20, kMostFloorBytes);
}

}  // namespace

Evictor::Evictor(CacheDirectory& directory, Pins& pins, const CacheOptions& options)
    : directory_(directory),
      pins_(pins),
      limit_bytes_(options.limit_bytes > 0 ? options.limit_bytes : kNoLimit),
      free_floor_bytes_(options.free_floor_bytes != UINT64_MAX ? options.free_floor_bytes
                                                               : default_floor(directory.root())),
      next_bucket_(random_bucket()) {}

// --- reserving ---

bool Evictor::agree_on_limit(std::uint64_t limit_bytes) noexcept {
  std::uint64_t known = kNoLimit;
  return limit_bytes_.compare_exchange_strong(known, limit_bytes) || known == limit_bytes;
}

std::uint64_t Evictor::limit_bytes() const noexcept {
  const std::uint64_t limit = limit_bytes_.load();
  return limit == kNoLimit ? 0 : limit;
}

std::uint64_t Evictor::capacity_bytes() const {
  // Without reservations: of what is not written yet the disk knows nothing. What is written and no
  // file yet counts twice, which is too little room for a moment.
  const std::uint64_t files = directory_.ledger().file_bytes();
  const std::uint64_t free = free_bytes();
  const std::uint64_t floor = free_floor_bytes_;
  const std::uint64_t limit = limit_bytes_.load();
  if (free == UINT64_MAX) return limit;
  if (free < floor) return std::min(limit, files - std::min(floor - free, files));
  return std::min(limit, files + (free - floor));
}

/// UINT64_MAX: unknown.
std::uint64_t Evictor::free_bytes() const {
  struct statvfs info {};
  if (::fstatvfs(directory_.root(), &info) != 0) return UINT64_MAX;
  return std::uint64_t{info.f_bavail} * info.f_frsize;
}

bool Evictor::reserve(const ExtentInfo& info) {
  const bool has_room = find_room(info);
  if (!has_room) note_no_room();
  return has_room;
}

bool Evictor::find_room(const ExtentInfo& info) {
  Ledger& ledger = directory_.ledger();
  const std::uint64_t bytes = file_bytes(info.name);
  const std::uint64_t limit = capacity_bytes();
  if (!ledger.is_doubtful() && ledger.try_reserve(bytes, limit)) return true;
  if (bytes > limit) return false;
  // A little more than is needed: the next ones find room without a search.
  const std::uint64_t spare = std::max(bytes, limit / kEvictedShare);
  // Others take of the room that was made, too.
  constexpr int kTries = 4;
  for (int i = 0; i < kTries; ++i) {
    if (lookups_since_.load() < pause_lookups_.load()) return false;
    make_room(limit - std::min(limit, spare), info);
    // Doubtful still: another process counts, and what the dead left may lie there.
    if (!ledger.is_doubtful() && ledger.try_reserve(bytes, limit)) return true;
  }
  return false;
}

void Evictor::note_no_room() {
  if (has_told_no_room_.load()) return;
  const std::uint64_t free = free_bytes();
  if (free >= free_floor_bytes_ || has_told_no_room_.exchange(true)) return;
  log_full_disk(directory_.path(), free, free_floor_bytes_);
}

// --- evicting ---

bool Evictor::is_small(std::uint64_t target_bytes) {
  Ledger& ledger = directory_.ledger();
  ledger.sweep();
  return !ledger.is_doubtful() && ledger.used_bytes() <= target_bytes;
}

void Evictor::make_room(std::uint64_t target_bytes, const ExtentInfo& wanted) {
  Ledger& ledger = directory_.ledger();
  MutexLock lock(mutex_);
  if (is_small(target_bytes) || !ledger.try_begin_eviction()) return;
  const Look look = look_and_count(target_bytes, ++eviction_count_ % kFullLookEvery == 0);
  if (!look.is_all) {
    const std::uint64_t used = ledger.used_bytes();
    const std::uint64_t most = std::max(look.file_bytes / kEvictedOfSome, file_bytes(wanted.name));
    target_bytes = std::max(target_bytes, used - std::min(used, most));
  }
  const Gone gone = evict(look.extents, target_bytes, &wanted);
  ledger.end_eviction();
  // All that is here is needed before what comes: that stays so until some of it was read.
  lookups_since_.store(0);
  pause_lookups_.store(gone.bytes == 0 ? look.extents.size() / kPauseShare : 0);
}

Result<std::uint64_t> Evictor::shrink_to(std::uint64_t target_bytes) {
  Ledger& ledger = directory_.ledger();
  const TimePoint until = directory_.clock().now() + kShrinkPatience;
  while (directory_.clock().now() < until) {
    {
      MutexLock lock(mutex_);
      if (is_small(target_bytes)) return std::uint64_t{0};
      if (ledger.try_begin_eviction()) {
        Look look = look_and_count(target_bytes, true);
        Gone gone = evict(look.extents, target_bytes, nullptr);
        ledger.end_eviction();
        HEADRACE_TRY(std::move(look.failure));
        HEADRACE_TRY(std::move(gone.failure));
        return gone.bytes;
      }
    }
    std::this_thread::sleep_for(kShrinkPause);
  }
  return Status(Code::kDeadline,
                "making the cache smaller: another process has been evicting all the time, or the "
                "directory cannot be locked");
}

Evictor::Look Evictor::look_and_count(std::uint64_t target_bytes, bool at_all) {
  Ledger& ledger = directory_.ledger();
  Look look;
  if (!ledger.is_doubtful()) look = look_around(at_all);
  // Somebody died while files came and went, or deleted some by hand, or put some there.
  const std::uint64_t told = ledger.file_bytes();
  const bool is_wrong = look.is_all && (told < look.file_bytes ||
                                        told > look.file_bytes + target_bytes / kEvictedShare);
  if (ledger.is_doubtful() || is_wrong) {
    ledger.recount([&]() HEADRACE_REQUIRES(mutex_) -> std::optional<std::uint64_t> {
      look = look_around(true);
      if (!look.failure.ok()) return std::nullopt;  // Some were not seen: the sum would be too low.
      return look.file_bytes;
    });
  }
  if (look.extents.empty()) look = look_around(true);
  return look;
}

Evictor::Look Evictor::look_around(bool at_all) {
  Look look;
  auto next = directory_.index().visit_some(
      at_all ? 0 : next_bucket_, at_all ? SIZE_MAX : kEnoughExtents, [&](const ExtentName& extent) {
        look.extents.push_back(extent);
        look.file_bytes += file_bytes(extent);
      });
  look.is_all = next && !next->has_value();
  if (!next) {
    directory_.note_failure(next.error());
    look.failure = std::move(next).error();
  } else if (!look.is_all) {
    next_bucket_ = **next;
  }
  return look;
}

Evictor::Gone Evictor::evict(const std::vector<ExtentName>& extents, std::uint64_t target_bytes,
                             const ExtentInfo* wanted) {
  Ledger& ledger = directory_.ledger();
  if (ledger.used_bytes() <= target_bytes) return {};
  PlanBoard plans;
  plans.look(directory_.plans());
  std::optional<std::uint32_t> limit =
      wanted != nullptr ? plans.next_need(wanted->name) : std::nullopt;
  const bool has_pins = pins_.look();
  if (wanted != nullptr && has_pins && pins_.covers(wanted->url)) limit = 0;
  bool was_pinned = false;
  Gone gone;
  for (const Candidate& victim : candidates(extents, plans)) {
    if (ledger.used_bytes() <= target_bytes) break;
    if (has_pins && pins_.covers(victim.name)) {
      was_pinned = true;
      continue;
    }
    // What nobody plans to read makes room for nothing that somebody does.
    if (wanted != nullptr && victim.need && (!limit || *victim.need <= *limit)) break;
    if (!victim.need && !victim.was_hit) ledger.note_ghost(victim.name);
    auto is_gone = directory_.unlink_extent(victim.name);
    if (is_gone && *is_gone) gone.bytes += file_bytes(victim.name);
    if (!is_gone && gone.failure.ok()) gone.failure = std::move(is_gone).error();
  }
  evicted_bytes_.add(gone.bytes);
  if (wanted != nullptr && gone.bytes == 0 && was_pinned) pin_refusals_.add();
  return gone;
}

std::vector<Candidate> Evictor::candidates(const std::vector<ExtentName>& extents,
                                           const PlanBoard& plans) const {
  std::vector<Candidate> all;
  all.reserve(extents.size());
  for (const ExtentName& extent : extents) {
    const auto need = plans.next_need(extent);
    if (need && *need != PlanEntry::kNever) {
      all.push_back({.name = extent, .file_bytes = file_bytes(extent), .need = need});
      continue;
    }
    const std::string path = extent_path(extent);
    struct stat info {};
    if (::fstatat(directory_.root(), path.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0) continue;
    const bool was_hit = nanoseconds(info.st_mtim) != 0;
    all.push_back({.name = extent,
                   .file_bytes = file_bytes(extent),
                   .need = {},
                   .was_hit = was_hit,
                   .since_ns = nanoseconds(was_hit ? info.st_mtim : info.st_atim)});
  }
  return eviction_order(std::move(all));
}

void Evictor::append_metrics(MetricList& out) const {
  append_counter(out, "cache.evicted_bytes", "bytes", evicted_bytes_.value());
  append_counter(out, "cache.pin_refusals", "extents", pin_refusals_.value());
  append_gauge(out, "cache.free_floor_bytes", "bytes", static_cast<double>(free_floor_bytes_));
}

}  // namespace headrace::tier
