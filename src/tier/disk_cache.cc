// Invariants:
// - Whoever reads never waits for whoever writes: files are read and written by threads of their
//   own, and what finds no memory or no room to be written in is left out. A writer reserves
//   room, makes the file and names it; while nobody else may want it soon, a maker makes it, which
//   gives way to all other threads, and the namer names it.
// - Sums are made of the bytes as they came. Whoever has the slab that is written from may change
//   it meanwhile: then the file does not match them.
// - A file comes and goes inside a Ledger::Change, and is paid for before it comes.
// - No failure of the directory reaches a reader: what cannot be read is fetched, what cannot be
//   written is not kept, and after a full or broken disk writing pauses.
// - Nothing but files with names of extents, in buckets, is ever deleted.
#include "tier/disk_cache.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <map>
#include <optional>
#include <random>
#include <system_error>
#include <tuple>
#include <utility>

#include "base/check.h"
#include "base/errno_status.h"
#include "tier/cache_log.h"
#include "tier/directory_key.h"
#include "tier/file_parts.h"
#include "tier/file_time.h"
#include "tier/folder.h"

namespace headrace::tier {
namespace {

constexpr std::size_t kReadQueue = 16384;
/// Extents on their way to the disk.
constexpr std::size_t kWriteQueue = 4096;
constexpr std::uint64_t kMostBufferBytes = std::uint64_t{64} << 30;
constexpr std::chrono::seconds kPauseAfterFailure{5};
/// So long after somebody has waited for another's fetch, extents are written at once.
constexpr std::chrono::seconds kHasteAfterWait{5};
constexpr std::uint64_t kMostFloorBytes = std::uint64_t{16} << 30;
/// Of the limit: evicted at once, so that looking at all extents pays.
constexpr std::uint64_t kEvictedShare = 64;
/// With more extents than so many, some of that many go: looking at a million takes a second.
constexpr std::size_t kEnoughExtents = 32'768;
/// Of those: enough at once that looking pays, few enough that they are among the last of all.
constexpr std::uint64_t kEvictedOfSome = 16;
/// Each so many evictions all are looked at, and counted where the ledger does not agree: somebody
/// may have deleted files.
constexpr std::uint64_t kFullLookEvery = 16;
/// Of the extents: so many are looked for before it is tried again to make room, after there was
/// none to make.
constexpr std::uint64_t kPauseShare = 256;
constexpr std::string_view kVersionFolder = "v1";

/// The calling thread gets what other threads leave of the processors, from now on: of a busy one
/// a seventieth (nice 19, sched(7)). Not less (SCHED_IDLE): a loop that keeps all of them busy for
/// hours would keep nothing. The disk's queue ranks by it as well (ioprio_set(2)).
void give_way() noexcept {
  thread_local const int result = ::setpriority(PRIO_PROCESS, 0, 19);  // 0: this thread.
  static_cast<void>(result);
}

/// Processes look at different ones first.
std::uint32_t random_bucket() {
  std::random_device seed;
  return seed() % kBucketCount;
}

Status check(const CacheOptions& options) {
  if (options.directory.empty())
    return Status(Code::kInvalidArgument, "cache: the directory has no name");
  if (options.reader_count == 0 || options.writer_count == 0)
    return Status(Code::kInvalidArgument, "cache: it needs threads to read and to write");
  return {};
}

Result<Fd> open_root(const std::string& directory, Access access) {
  std::error_code error;
  const auto parent = std::filesystem::absolute(directory, error).parent_path();
  if (!error) std::filesystem::create_directories(parent, error);
  if (error) return errno_status(error.value(), "cache: making the directory " + parent.string());
  HEADRACE_TRY_ASSIGN(const Fd top, open_folder_for(access, AT_FDCWD, directory));
  HEADRACE_TRY_ASSIGN(Fd root, open_folder_for(access, top.get(), std::string(kVersionFolder)));
  if (access == Access::kGroup && access_of(root.get()) != Access::kGroup)
    return Status(
        Code::kInvalidArgument,
        "cache: " + directory +
            " is not shared with its group: it was made for its owner alone, or its maker "
            "is not in the group. Give another directory, or delete this one");
  return root;
}

std::uint64_t default_floor(int root) {
  struct statvfs info {};
  if (::fstatvfs(root, &info) != 0) return 0;
  return std::min<std::uint64_t>(info.f_blocks * info.f_frsize / 20, kMostFloorBytes);
}

/// The caches of this process by device and inode of their folders, and by their key's id: a
/// directory has one object, whatever it is called, and one more that knows no key of it.
struct Registry {
  using Name = std::tuple<std::uint64_t, std::uint64_t, std::string>;
  Mutex mutex;
  std::map<Name, std::weak_ptr<DiskCache>> caches HEADRACE_GUARDED_BY(mutex);
};
Registry& registry() {
  static Registry* const all = new Registry;  // Threads may outlive static destructors.
  return *all;
}

}  // namespace

Result<std::shared_ptr<DiskCache>> DiskCache::create(const CacheOptions& options) {
  HEADRACE_TRY(check(options));
  HEADRACE_TRY_ASSIGN(
      Fd root,
      open_root(options.directory, options.is_group_shared ? Access::kGroup : Access::kOwner));
  struct stat info {};
  if (::fstat(root.get(), &info) != 0) return errno_status(errno, "cache: " + options.directory);
  Registry& all = registry();
  MutexLock lock(all.mutex);
  std::weak_ptr<DiskCache>& known =
      all.caches[{info.st_dev, info.st_ino, options.key != nullptr ? options.key->id() : ""}];
  if (auto cache = known.lock()) {
    if (Status status = cache->check_readable(); options.is_for_reads && !status.ok())
      return std::move(status).annotate("cache " + options.directory);
    if (options.limit_bytes == 0 || cache->options_.limit_bytes == options.limit_bytes) {
      cache->allow_buffers(options.buffer_bytes);
      return cache;
    }
    return Status(Code::kInvalidArgument,
                  "cache: " + options.directory +
                      " is open in this process with another limit; give the same cache_limit");
  }
  CacheOptions own = options;
  if (own.free_floor_bytes == UINT64_MAX) own.free_floor_bytes = default_floor(root.get());
  HEADRACE_TRY_ASSIGN(Fd plans, open_folder(root.get(), "plans", true));
  std::shared_ptr<DiskCache> cache(new DiskCache(own, std::move(root), std::move(plans)));
  HEADRACE_TRY(cache->start());
  known = cache;
  return cache;
}

DiskCache::DiskCache(const CacheOptions& options, Fd root, Fd plans)
    : options_(options),
      clock_(options.clock != nullptr ? *options.clock : system_clock()),
      root_(std::move(root)),
      plans_(std::move(plans)),
      makes_nameless_(NewExtent::can_be_nameless(plans_.get())),  // There the dead are swept.
      index_(root_.get()),
      pins_(options.directory + "/" + std::string(kVersionFolder), root_.get()),
      next_bucket_(random_bucket()) {}

Status DiskCache::start() {
  const auto agree = [this]() -> Status {
    HEADRACE_TRY_ASSIGN(key_id_, agree_on_key(root_.get(), options_.key.get()));
    return options_.is_for_reads ? check_readable() : Status();
  };
  auto ledger = Ledger::open(root_.get(), agree);
  if (!ledger) return std::move(ledger).error().annotate("cache " + options_.directory);
  ledger_ = *std::move(ledger);
  ledger_->sweep();
  HEADRACE_TRY_ASSIGN(buffers_, SlabPool::create({.limit_bytes = kMostBufferBytes}));
  allow_buffers(options_.buffer_bytes);
  readers_ = std::make_unique<ThreadPool>(options_.reader_count, kReadQueue);
  writers_ = std::make_unique<ThreadPool>(options_.writer_count, kWriteQueue);
  makers_ = std::make_unique<ThreadPool>(options_.writer_count, kWriteQueue);
  namer_ = std::make_unique<ThreadPool>(1, kWriteQueue);
  delayed_ = std::make_unique<DelayedTasks>(*readers_);
  return {};
}

Status DiskCache::check_readable() const {
  if (key_id_.empty() || options_.key != nullptr) return {};
  return Status(Code::kDenied,
                "is encrypted under the key " + key_id_ + "; say with cache_key= where that is");
}

void DiskCache::allow_buffers(std::uint64_t bytes) noexcept {
  std::uint64_t known = buffer_bytes_.load();
  while (known < bytes && !buffer_bytes_.compare_exchange_weak(known, bytes)) {
  }
}

DiskCache::~DiskCache() {
  delayed_.reset();
  readers_.reset();
  flush();  // So none hands anything on to another.
  makers_.reset();
  namer_.reset();
  writers_.reset();
}

// --- reading ---

void DiskCache::read(const ExtentInfo& wanted, std::span<std::byte> out, TimePoint deadline,
                     Done done) {
  static_cast<void>(deadline);  // A disk takes no time to speak of, or cannot be stopped.
  std::uint64_t object_size = 0;
  const Found found = find(wanted.name, out, object_size);
  done(found, object_size);
}

DiskCache::Found DiskCache::find(const ExtentName& range, std::span<std::byte> out,
                                 std::uint64_t& object_size_bytes) {
  lookups_since_.fetch_add(1, std::memory_order_relaxed);
  const std::vector<ExtentName> extents = index_.cover(range);
  if (extents.empty()) return Found::kNothing;
  if (range.length_bytes >= Pace::kLeastBytes && pace_.prefers_store(clock_.now())) {
    passed_bytes_.add(range.length_bytes);
    return Found::kTooSlow;
  }
  std::uint64_t at = range.offset_bytes;
  for (const ExtentName& extent : extents) {
    const std::uint64_t from = at - extent.offset_bytes;
    const auto part = out.first(std::min<std::size_t>(extent.length_bytes - from, out.size()));
    if (!read_one(extent, from, part, object_size_bytes)) return Found::kNothing;
    out = out.subspan(part.size());
    at += part.size();
  }
  hits_.add();
  hit_bytes_.add(range.length_bytes);
  return Found::kAll;
}

bool DiskCache::read_one(const ExtentName& extent, std::uint64_t from_bytes,
                         std::span<std::byte> out, std::uint64_t& object_size_bytes) {
  const std::string path = extent_path(extent);
  const Fd file(::openat(root_.get(), path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  if (!file) {
    index_.remove(extent);
    if (errno != ENOENT) note_failure(errno_status(errno, "cache: opening " + path));
    return false;
  }
  const Status status =
      read_extent(file.get(), extent, from_bytes, out, object_size_bytes, options_.key.get());
  if (status.ok()) {
    if (index_.note_hit(extent) || !is_marked(file.get())) mark_hit(extent);
    return true;
  }
  if (status.code() == Code::kCorrupt) {
    corrupt_.add();
  } else {
    note_failure(status);
  }
  // What cannot be read goes as well: another file lies on other blocks of the disk.
  unlink_extent(extent);
  index_.remove(extent);
  return false;
}

/// Whether the file's times say that it was read again. Another process may have put it anew since
/// this one has said so.
bool DiskCache::is_marked(int file) noexcept {
  struct stat info {};
  return ::fstat(file, &info) != 0 || nanoseconds(info.st_mtim) != 0;
}

/// A file's times say when it came (access) and when it was first read again by some process
/// (change; 0: never), which is what eviction asks where nobody knows the future.
void DiskCache::mark_hit(const ExtentName& extent) const {
  const std::string path = extent_path(extent);
  timespec times[2]{};
  // Both to now is what others than the file's owner may do, too; of what was read again the access
  // is asked no more.
  times[0].tv_nsec = UTIME_NOW;
  times[1].tv_nsec = UTIME_NOW;
  ::utimensat(root_.get(), path.c_str(), times, AT_SYMLINK_NOFOLLOW);
}

DiskCache::Flight DiskCache::begin_flight(const ExtentName& extent) {
  {
    MutexLock lock(flights_mutex_);
    if (!flights_.insert(extent).second) return {};
  }
  if (ledger_->try_begin_flight(extent)) return {*this, extent};
  MutexLock lock(flights_mutex_);
  flights_.erase(extent);
  return {};
}

void DiskCache::end_flight(const ExtentName& extent) {
  MutexLock lock(flights_mutex_);
  ledger_->end_flight(extent);
  flights_.erase(extent);
}

void DiskCache::drop(const ExtentName& range) {
  for (const ExtentName& extent : index_.overlapping(range)) {
    unlink_extent(extent);
    index_.remove(extent);  // Even where it could not be deleted.
  }
}

// --- writing ---

bool DiskCache::begin_write() {
  MutexLock lock(writes_mutex_);
  if (writes_pending_ == kWriteQueue) return false;
  ++writes_pending_;
  return true;
}

void DiskCache::end_write() {
  MutexLock lock(writes_mutex_);
  if (--writes_pending_ == 0) writes_done_.notify_all();
}

/// Two at a time may both find room for one: off by an extent for each thread that reads.
bool DiskCache::has_write_room(std::uint64_t bytes) const noexcept {
  return waiting_bytes() + SlabPool::charged_bytes(bytes) <= buffer_bytes_.load();
}

std::optional<Slab> DiskCache::buffer(std::uint64_t bytes) {
  if (clock_.now().time_since_epoch().count() < writes_off_until_ns_.load()) return std::nullopt;
  if (!has_write_room(bytes)) return std::nullopt;
  auto slab = buffers_->try_acquire(bytes);
  return slab ? std::optional(*std::move(slab)) : std::nullopt;
}

bool DiskCache::write_later(ThreadPool::Task task) {
  if (!begin_write()) return false;
  HEADRACE_CHECK(writers_->submit([this, task = std::move(task)]() mutable {
    task();
    task = nullptr;  // With its memory.
    end_write();
  }));
  return true;
}

/// An extent on its way to the disk.
struct DiskCache::Write {
  ExtentInfo info;
  Flight flight = {};
  Slab pages = {}, memory = {};  // What `parts` lies in.
  FileParts parts = {};
  std::uint64_t held_bytes = 0;  // Of them in somebody else's slab; then it is sealed.
  std::optional<NewExtent> file = {};
};

void DiskCache::keep(ExtentInfo info, std::span<const std::byte> data, Flight flight,
                     const Slab& slab) {
  if (!begin_write()) return note_left_out(data.size());
  auto job = std::make_shared<Write>(Write{.info = std::move(info), .flight = std::move(flight)});
  if (!take_in(*job, data, slab)) {
    note_left_out(data.size());
    return finish(*job);
  }
  HEADRACE_CHECK(writers_->submit([this, job] { begin(job); }));
}

bool DiskCache::take_in(Write& job, std::span<const std::byte> data, const Slab& slab) {
  auto pages = buffer(FileParts::kPagesBytes);
  if (!pages) return false;
  job.pages = *std::move(pages);
  job.parts.pages = job.pages.bytes();
  const bool fits = data.size() < kDirectBytes || is_at_page(data.data());
  if (slab && fits && options_.key == nullptr && has_write_room(data.size()))
    job.memory = slab.hold();
  if (job.memory) {
    job.held_bytes = SlabPool::charged_bytes(data.size());
    held_bytes_.fetch_add(job.held_bytes);
    const auto at = static_cast<std::size_t>(data.data() - job.memory.bytes().data());
    job.parts.data = job.memory.bytes().subspan(at, data.size());
    seal_extent(job.info, job.parts, nullptr);
    return true;
  }
  auto copy = buffer(data.size());
  if (!copy) return false;
  job.memory = *std::move(copy);
  job.parts.data = job.memory.bytes();
  std::memcpy(job.parts.data.data(), data.data(), data.size());
  return true;
}

bool DiskCache::can_wait(const Write& job) const {
  const TimePoint last_wait{TimePoint::duration(last_wait_ns_.load(std::memory_order_relaxed))};
  // A change of threads would cost more than making it.
  return job.parts.data.size() >= kDirectBytes && clock_.now() - last_wait > kHasteAfterWait &&
         ledger_->is_alone();
}

void DiskCache::begin(const std::shared_ptr<Write>& job) {
  if (!reserve(job->info)) {
    note_no_room(job->info.name.length_bytes);
    return finish(*job);
  }
  const auto end = [this, job] {
    show_file(*job);
    finish(*job);
  };
  if (!can_wait(*job)) {
    make_file(*job);
    return end();
  }
  HEADRACE_CHECK(makers_->submit([this, job, end] {
    give_way();
    make_file(*job);
    HEADRACE_CHECK(namer_->submit(end));
  }));
}

void DiskCache::write(const ExtentInfo& info, const FileParts& parts) {
  if (!reserve(info)) return note_no_room(info.name.length_bytes);
  Write job{.info = info, .parts = parts};
  make_file(job);
  show_file(job);
}

/// Holds no lock that readers may want, as its thread may get no processor for long.
void DiskCache::make_file(Write& job) {
  if (job.held_bytes == 0) seal_extent(job.info, job.parts, options_.key.get());
  auto directory = index_.open_bucket(bucket_of(job.info.name.object), true);
  auto file = directory ? NewExtent::write(*std::move(directory), job.parts, makes_nameless_)
                        : Result<NewExtent>(std::move(directory).error());
  if (file) {
    job.file.emplace(*std::move(file));
  } else {
    note_failure(file.error());
  }
}

void DiskCache::show_file(Write& job) {
  if (!job.file) return ledger_->cancel(file_bytes(job.info.name));
  show(job.info, [&](bool was_hit) { return job.file->publish(job.info.name, was_hit); });
}

void DiskCache::finish(Write& job) {
  job.file.reset();
  job.memory = Slab();
  job.pages = Slab();
  held_bytes_.fetch_sub(job.held_bytes);
  job.flight = Flight();  // Whoever waits for it finds the file.
  end_write();
}

template <class Publish>
void DiskCache::show(const ExtentInfo& info, const Publish& publish) {
  const std::uint64_t bytes = file_bytes(info.name);
  Status status;
  {
    Ledger::Change change(*ledger_);
    if (!change.add(bytes)) return note_left_out(info.name.length_bytes);
    status = publish(ledger_->was_ghost(info.name));
    if (!status.ok()) change.subtract(bytes);
  }
  if (status.code() == Code::kChanged) return;  // There already.
  if (!is_done(status)) return;
  index_.add(info.name);
  written_bytes_.add(info.name.length_bytes);
}

std::unique_ptr<ExtentDraft> DiskCache::begin_draft(const ExtentInfo& info,
                                                    std::uint64_t part_bytes) {
  if (!makes_nameless_) return nullptr;
  if (!reserve(info)) {
    note_no_room(0);
    return nullptr;
  }
  auto directory = index_.open_bucket(bucket_of(info.name.object), true);
  Status status = directory ? Status() : std::move(directory).error();
  if (status.ok()) {
    auto draft = ExtentDraft::create(directory->get(), info, part_bytes, options_.key.get());
    if (draft) return *std::move(draft);
    status = std::move(draft).error();
  }
  ledger_->cancel(file_bytes(info.name));
  note_failure(status);
  return nullptr;
}

void DiskCache::publish_draft(ExtentDraft& draft) {
  auto directory = index_.open_bucket(bucket_of(draft.info().name.object), true);
  if (!directory) {
    note_failure(directory.error());
    return drop_draft(draft);
  }
  show(draft.info(), [&](bool was_hit) { return draft.publish(directory->get(), was_hit); });
}

void DiskCache::drop_draft(const ExtentDraft& draft) {
  ledger_->cancel(file_bytes(draft.info().name));
}

bool DiskCache::is_done(const Status& status) {
  if (!status.ok()) note_failure(status);
  return status.ok();
}

std::uint64_t DiskCache::limit_now(std::uint64_t used_bytes) const {
  std::uint64_t limit = options_.limit_bytes > 0 ? options_.limit_bytes : UINT64_MAX;
  const std::uint64_t free = free_bytes();
  const std::uint64_t floor = options_.free_floor_bytes;
  if (free == UINT64_MAX) return limit;
  if (free < floor) return std::min(limit, used_bytes - std::min(floor - free, used_bytes));
  return std::min(limit, used_bytes + (free - floor));
}

/// UINT64_MAX: unknown.
std::uint64_t DiskCache::free_bytes() const {
  struct statvfs info {};
  if (::fstatvfs(root_.get(), &info) != 0) return UINT64_MAX;
  return std::uint64_t{info.f_bavail} * info.f_frsize;
}

void DiskCache::note_no_room(std::uint64_t bytes) {
  skipped_bytes_.add(bytes);
  if (has_told_no_room_.load()) return;
  const std::uint64_t free = free_bytes();
  if (free >= options_.free_floor_bytes || has_told_no_room_.exchange(true)) return;
  log_full_disk(options_.directory, free, options_.free_floor_bytes);
}

bool DiskCache::reserve(const ExtentInfo& info) {
  const std::uint64_t bytes = file_bytes(info.name);
  const std::uint64_t limit = limit_now(ledger_->used_bytes());
  if (!ledger_->is_doubtful() && ledger_->try_reserve(bytes, limit)) return true;
  if (bytes > limit) return false;
  // A little more than is needed: the next ones find room without a search.
  const std::uint64_t spare = std::max(bytes, limit / kEvictedShare);
  // Others take of the room that was made, too.
  constexpr int kTries = 4;
  for (int i = 0; i < kTries; ++i) {
    if (lookups_since_.load() < pause_lookups_.load()) return false;
    evict_to(limit - std::min(limit, spare), &info);
    if (ledger_->try_reserve(bytes, limit)) return true;
  }
  return false;
}

void DiskCache::note_failure(const Status& status) {
  failures_.add();
  const bool is_passing = status.code() == Code::kNotFound || status.code() == Code::kDeadline;
  if (is_passing) return;
  log_disk_failure(options_.directory, status);
  writes_off_until_ns_.store((clock_.now() + kPauseAfterFailure).time_since_epoch().count());
}

void DiskCache::flush() {
  MutexLock lock(writes_mutex_);
  while (writes_pending_ > 0) lock.wait(writes_done_);
}

// --- evicting ---

bool DiskCache::unlink_extent(const ExtentName& extent) {
  const std::string path = extent_path(extent);
  Ledger::Change change(*ledger_);
  const bool is_gone = ::unlinkat(root_.get(), path.c_str(), 0) == 0;
  if (!is_gone && errno != ENOENT) {
    // A file system that takes no change: it is still there to be read.
    note_failure(errno_status(errno, "cache: deleting " + path));
    return false;
  }
  if (is_gone) change.subtract(file_bytes(extent));
  index_.remove(extent);
  return is_gone;
}

std::vector<Candidate> DiskCache::candidates(const std::vector<ExtentName>& extents,
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
    if (::fstatat(root_.get(), path.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0) continue;
    const bool was_hit = nanoseconds(info.st_mtim) != 0;
    all.push_back({.name = extent,
                   .file_bytes = file_bytes(extent),
                   .need = {},
                   .was_hit = was_hit,
                   .since_ns = nanoseconds(was_hit ? info.st_mtim : info.st_atim)});
  }
  return eviction_order(std::move(all));
}

DiskCache::Look DiskCache::look_around(bool at_all) {
  Look look;
  auto next = index_.visit_some(at_all ? 0 : next_bucket_, at_all ? SIZE_MAX : kEnoughExtents,
                                [&](const ExtentName& extent) {
                                  look.extents.push_back(extent);
                                  look.file_bytes += file_bytes(extent);
                                });
  look.has_failed = !next.has_value();
  look.is_all = next && !next->has_value();
  if (look.has_failed) {
    note_failure(next.error());
  } else if (!look.is_all) {
    next_bucket_ = **next;
  }
  return look;
}

DiskCache::Look DiskCache::look_and_count(std::uint64_t target_bytes, bool at_all) {
  Look look;
  if (!ledger_->is_doubtful()) look = look_around(at_all);
  // Somebody died while files came and went, or deleted some by hand, or put some there.
  const std::uint64_t told = ledger_->file_bytes();
  const bool is_wrong = look.is_all && (told < look.file_bytes ||
                                        told > look.file_bytes + target_bytes / kEvictedShare);
  if (ledger_->is_doubtful() || is_wrong) {
    ledger_->recount([&]() HEADRACE_REQUIRES(eviction_mutex_) -> std::optional<std::uint64_t> {
      look = look_around(true);
      if (look.has_failed) return std::nullopt;  // Some were not seen: the sum would be too low.
      return look.file_bytes;
    });
  }
  if (look.extents.empty()) look = look_around(true);
  return look;
}

std::uint64_t DiskCache::evict_to(std::uint64_t target_bytes, const ExtentInfo* wanted) {
  MutexLock lock(eviction_mutex_);
  ledger_->sweep();
  if (!ledger_->is_doubtful() && ledger_->used_bytes() <= target_bytes) return 0;
  if (!ledger_->try_begin_eviction()) return 0;
  const bool at_all = wanted == nullptr || ++eviction_count_ % kFullLookEvery == 0;
  const Look look = look_and_count(target_bytes, at_all);
  const std::uint64_t used = ledger_->used_bytes();
  if (wanted != nullptr && !look.is_all) {
    const std::uint64_t most = std::max(look.file_bytes / kEvictedOfSome, file_bytes(wanted->name));
    target_bytes = std::max(target_bytes, used - std::min(used, most));
  }
  const std::uint64_t gone = used > target_bytes ? evict(look.extents, target_bytes, wanted) : 0;
  ledger_->end_eviction();
  if (wanted != nullptr) {
    // All that is here is needed before what comes: that stays so until some of it was read.
    lookups_since_.store(0);
    pause_lookups_.store(gone == 0 ? look.extents.size() / kPauseShare : 0);
  }
  return gone;
}

std::uint64_t DiskCache::evict(const std::vector<ExtentName>& extents, std::uint64_t target_bytes,
                               const ExtentInfo* wanted) {
  PlanBoard plans;
  plans.look(plans_.get());
  std::optional<std::uint32_t> limit =
      wanted != nullptr ? plans.next_need(wanted->name) : std::nullopt;
  const bool has_pins = pins_.look();
  if (wanted != nullptr && has_pins && pins_.covers(wanted->url)) limit = 0;
  bool was_pinned = false;
  std::uint64_t gone = 0;
  for (const Candidate& victim : candidates(extents, plans)) {
    if (ledger_->used_bytes() <= target_bytes) break;
    if (has_pins && pins_.covers(victim.name)) {
      was_pinned = true;
      continue;
    }
    // What nobody plans to read makes room for nothing that somebody does.
    if (wanted != nullptr && victim.need && (!limit || *victim.need <= *limit)) break;
    if (!victim.need && !victim.was_hit) ledger_->note_ghost(victim.name);
    if (unlink_extent(victim.name)) gone += file_bytes(victim.name);
  }
  evicted_bytes_.add(gone);
  if (wanted != nullptr && gone == 0 && was_pinned) pin_refusals_.add();
  return gone;
}

std::shared_ptr<OwnPlan> DiskCache::publish_plan(std::vector<PlanEntry> entries) {
  auto plan = OwnPlan::publish(plans_.get(), std::move(entries));
  if (plan) return *std::move(plan);
  note_failure(plan.error());
  return nullptr;
}

// --- for people ---

Result<CacheUsage> DiskCache::usage() {
  CacheUsage usage;
  Status status;
  const auto count = [&]() -> std::optional<std::uint64_t> {
    usage = {.limit_bytes = options_.limit_bytes, .key_id = key_id_};
    status = index_.visit([&](const ExtentName& extent) {
      ++usage.extent_count;
      usage.file_bytes += file_bytes(extent);
      usage.data_bytes += extent.length_bytes;
    });
    return status.ok() ? std::optional(usage.file_bytes) : std::nullopt;
  };
  // As all are looked at anyway, the ledger learns what there is.
  if (!ledger_->recount(count)) count();
  if (!status.ok()) return status.clone();
  return usage;
}

Status DiskCache::list(const std::function<void(const CachedExtent&)>& visit) {
  return index_.visit([&](const ExtentName& extent) {
    const std::string path = extent_path(extent);
    const Fd file(::openat(root_.get(), path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
    if (!file) return;
    CachedExtent out{.path = std::string(kVersionFolder) + "/" + path,
                     .url = {},
                     .etag = {},
                     .offset_bytes = extent.offset_bytes,
                     .length_bytes = extent.length_bytes,
                     .file_bytes = file_bytes(extent)};
    if (auto info = read_info(file.get(), &extent)) {
      out.url = std::move(info->url);
      out.etag = std::move(info->etag);
      out.object_size_bytes = info->object_size_bytes;
    }
    visit(out);
  });
}

Result<CacheCheck> DiskCache::verify(const std::function<bool(std::uint64_t)>& progress) {
  CacheCheck check;
  std::vector<std::byte> bytes;
  bool goes_on = true;
  HEADRACE_TRY(index_.visit([&](const ExtentName& extent) {
    if (!goes_on) return;
    const std::string path = extent_path(extent);
    const Fd file(::openat(root_.get(), path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
    if (!file) return;
    bytes.resize(extent.length_bytes);
    std::uint64_t ignored = 0;
    const bool is_key_missing = !key_id_.empty() && options_.key == nullptr;
    const Status status =
        is_key_missing ? check_sums(file.get(), extent, bytes)
                       : read_extent(file.get(), extent, 0, bytes, ignored, options_.key.get());
    ++check.extent_count;
    check.data_bytes += extent.length_bytes;
    if (status.code() == Code::kCorrupt && unlink_extent(extent)) ++check.broken_count;
    goes_on = progress == nullptr || progress(check.data_bytes);
  }));
  return check;
}

Result<std::uint64_t> DiskCache::remove(const std::string& url_prefix) {
  std::uint64_t gone = 0;
  if (url_prefix.empty()) {
    HEADRACE_TRY(index_.visit([&](const ExtentName& extent) {
      if (unlink_extent(extent)) gone += file_bytes(extent);
    }));
    return gone;
  }
  std::vector<ExtentName> matching;
  HEADRACE_TRY(list([&](const CachedExtent& extent) {
    if (!extent.url.starts_with(url_prefix)) return;
    if (const auto name = parse_file_name(extent.path.substr(extent.path.rfind('/') + 1)))
      matching.push_back(*name);
  }));
  for (const ExtentName& extent : matching) {
    if (unlink_extent(extent)) gone += file_bytes(extent);
  }
  return gone;
}

Result<std::uint64_t> DiskCache::shrink(std::uint64_t bytes) { return evict_to(bytes); }

std::uint64_t DiskCache::write_room_bytes() const noexcept {
  const std::uint64_t limit = buffer_bytes_.load();
  return limit - std::min(limit, waiting_bytes());
}

Status DiskCache::pin(const std::string& url_prefix) { return pins_.add(url_prefix); }
Result<bool> DiskCache::unpin(const std::string& url_prefix) { return pins_.remove(url_prefix); }
Result<std::vector<std::string>> DiskCache::pins() { return pins_.list(); }

void DiskCache::append_metrics(MetricList& out) const {
  append_counter(out, "cache.hits", "reads", hits_.value());
  append_counter(out, "cache.hit_bytes", "bytes", hit_bytes_.value());
  append_counter(out, "cache.misses", "reads", misses_.value());
  append_counter(out, "cache.miss_bytes", "bytes", miss_bytes_.value());
  append_counter(out, "cache.passed_bytes", "bytes", passed_bytes_.value());
  append_counter(out, "cache.waits", "reads", waits_.value());
  append_counter(out, "cache.written_bytes", "bytes", written_bytes_.value());
  append_counter(out, "cache.skipped_bytes", "bytes", skipped_bytes_.value());
  append_counter(out, "cache.evicted_bytes", "bytes", evicted_bytes_.value());
  append_counter(out, "cache.corrupt", "extents", corrupt_.value());
  append_counter(out, "cache.failures", "calls", failures_.value());
  append_counter(out, "cache.pin_refusals", "extents", pin_refusals_.value());
  append_gauge(out, "cache.used_bytes", "bytes", static_cast<double>(ledger_->used_bytes()));
  append_gauge(out, "cache.free_floor_bytes", "bytes",
               static_cast<double>(options_.free_floor_bytes));
}

}  // namespace headrace::tier

namespace headrace {

Result<std::shared_ptr<Cache>> Cache::open(const CacheOptions& options) {
  HEADRACE_TRY_ASSIGN(auto cache, tier::DiskCache::create(options));
  return std::shared_ptr<Cache>(std::move(cache));
}

}  // namespace headrace
