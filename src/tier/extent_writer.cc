// Invariants:
// - Whoever brings an extent never waits, for the disk or for memory.
// - Sums are made of the bytes as they came. Whoever has the slab that is written from may change
//   it meanwhile: then the file does not match them.
// - Each reservation ends once: in show(), or cancelled.
#include "tier/extent_writer.h"

#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "tier/extent_file.h"
#include "tier/file_parts.h"

namespace headrace::tier {
namespace {

/// Extents on their way to the disk.
constexpr std::size_t kWriteQueue = 4096;
constexpr std::uint64_t kMostBufferBytes = std::uint64_t{64} << 30;
/// So long after somebody has waited for another's fetch, extents are written at once.
constexpr std::chrono::seconds kHasteAfterWait{5};

/// The calling thread gets what other threads leave of the processors, from now on: of a busy one
/// a seventieth (nice 19, sched(7)). Not less (SCHED_IDLE): a loop that keeps all of them busy for
/// hours would keep nothing. The disk's queue ranks by it as well (ioprio_set(2)).
void give_way() noexcept {
  thread_local const int result = ::setpriority(PRIO_PROCESS, 0, 19);  // 0: this thread.
  static_cast<void>(result);
}

}  // namespace

/// An extent on its way to the disk.
struct ExtentWriter::Write {
  ExtentInfo info;
  Tier::Flight flight = {};
  Slab pages = {}, memory = {};  // What `parts` lies in.
  FileParts parts = {};
  std::uint64_t held_bytes = 0;  // Of them in somebody else's slab; then it is sealed.
  std::optional<NewExtent> file = {};
};

Result<std::unique_ptr<ExtentWriter>> ExtentWriter::create(CacheDirectory& directory,
                                                           Evictor& evictor,
                                                           const CacheOptions& options) {
  HEADRACE_TRY_ASSIGN(auto buffers, SlabPool::create({.limit_bytes = kMostBufferBytes}));
  return std::unique_ptr<ExtentWriter>(
      new ExtentWriter(directory, evictor, options, std::move(buffers)));
}

ExtentWriter::ExtentWriter(CacheDirectory& directory, Evictor& evictor, const CacheOptions& options,
                           std::unique_ptr<SlabPool> buffers)
    : directory_(directory),
      evictor_(evictor),
      makes_nameless_(NewExtent::can_be_nameless(directory.plans())),  // There the dead are swept.
      buffers_(std::move(buffers)),
      buffer_bytes_(options.buffer_bytes),
      writers_(options.writer_count, kWriteQueue),
      namer_(1, kWriteQueue),
      makers_(options.writer_count, kWriteQueue) {}

ExtentWriter::~ExtentWriter() {
  flush();  // So none of the threads hands anything on to another.
}

// --- what waits ---

bool ExtentWriter::begin_write() {
  MutexLock lock(mutex_);
  if (pending_count_ == kWriteQueue) return false;
  ++pending_count_;
  return true;
}

void ExtentWriter::end_write() {
  MutexLock lock(mutex_);
  if (--pending_count_ == 0) writes_done_.notify_all();
}

void ExtentWriter::flush() {
  MutexLock lock(mutex_);
  while (pending_count_ > 0) lock.wait(writes_done_);
}

void ExtentWriter::allow_buffers(std::uint64_t bytes) noexcept {
  std::uint64_t known = buffer_bytes_.load();
  while (known < bytes && !buffer_bytes_.compare_exchange_weak(known, bytes)) {
  }
}

std::uint64_t ExtentWriter::room_bytes() const noexcept {
  const std::uint64_t limit = buffer_bytes_.load();
  return limit - std::min(limit, waiting_bytes());
}

/// Two at a time may both find room for one: off by an extent for each thread that reads.
bool ExtentWriter::has_room(std::uint64_t bytes) const noexcept {
  return waiting_bytes() + SlabPool::charged_bytes(bytes) <= buffer_bytes_.load();
}

std::optional<Slab> ExtentWriter::buffer(std::uint64_t bytes) {
  if (directory_.pauses_writing() || !has_room(bytes)) return std::nullopt;
  auto slab = buffers_->try_acquire(bytes);
  return slab ? std::optional(*std::move(slab)) : std::nullopt;
}

void ExtentWriter::note_wait() noexcept {
  last_wait_ns_.store(directory_.clock().now().time_since_epoch().count(),
                      std::memory_order_relaxed);
}

// --- writing ---

bool ExtentWriter::write_later(ThreadPool::Task task) {
  if (!begin_write()) return false;
  HEADRACE_CHECK(writers_.submit([this, task = std::move(task)]() mutable {
    task();
    task = nullptr;  // With its memory.
    end_write();
  }));
  return true;
}

void ExtentWriter::keep(ExtentInfo info, std::span<const std::byte> data, Tier::Flight flight,
                        const Slab& slab) {
  if (!begin_write()) return note_left_out(data.size());
  auto job = std::make_shared<Write>(Write{.info = std::move(info), .flight = std::move(flight)});
  if (!take_in(*job, data, slab)) {
    note_left_out(data.size());
    return finish(*job);
  }
  HEADRACE_CHECK(writers_.submit([this, job] { begin(job); }));
}

bool ExtentWriter::take_in(Write& job, std::span<const std::byte> data, const Slab& slab) {
  auto pages = buffer(FileParts::kPagesBytes);
  if (!pages) return false;
  job.pages = *std::move(pages);
  job.parts.pages = job.pages.bytes();
  const bool fits = data.size() < kDirectBytes || is_at_page(data.data());
  if (slab && fits && directory_.key() == nullptr && has_room(data.size()))
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

bool ExtentWriter::can_wait(const Write& job) const {
  const TimePoint last_wait{TimePoint::duration(last_wait_ns_.load(std::memory_order_relaxed))};
  // A change of threads would cost more than making it.
  return job.parts.data.size() >= kDirectBytes &&
         directory_.clock().now() - last_wait > kHasteAfterWait && directory_.ledger().is_alone();
}

void ExtentWriter::begin(const std::shared_ptr<Write>& job) {
  if (!evictor_.reserve(job->info)) {
    note_left_out(job->info.name.length_bytes);
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
  HEADRACE_CHECK(makers_.submit([this, job, end] {
    give_way();
    make_file(*job);
    HEADRACE_CHECK(namer_.submit(end));
  }));
}

void ExtentWriter::write(const ExtentInfo& info, const FileParts& parts) {
  if (!evictor_.reserve(info)) return note_left_out(info.name.length_bytes);
  Write job{.info = info, .parts = parts};
  make_file(job);
  show_file(job);
}

/// Holds no lock that readers may want, as its thread may get no processor for long.
void ExtentWriter::make_file(Write& job) {
  if (job.held_bytes == 0) seal_extent(job.info, job.parts, directory_.key());
  auto folder = directory_.index().open_bucket(bucket_of(job.info.name.object), true);
  auto file = folder ? NewExtent::write(*std::move(folder), job.parts, makes_nameless_)
                     : Result<NewExtent>(std::move(folder).error());
  if (file) {
    job.file.emplace(*std::move(file));
  } else {
    directory_.note_failure(file.error());
  }
}

void ExtentWriter::show_file(Write& job) {
  if (!job.file) return directory_.ledger().cancel(file_bytes(job.info.name));
  show(job.info, [&](bool was_hit) { return job.file->publish(job.info.name, was_hit); });
}

void ExtentWriter::finish(Write& job) {
  job.file.reset();
  job.memory = Slab();
  job.pages = Slab();
  held_bytes_.fetch_sub(job.held_bytes);
  job.flight = Tier::Flight();  // Whoever waits for it finds the file.
  end_write();
}

template <class Publish>
void ExtentWriter::show(const ExtentInfo& info, const Publish& publish) {
  Ledger& ledger = directory_.ledger();
  const std::uint64_t bytes = file_bytes(info.name);
  Status status;
  {
    Ledger::Change change(ledger);
    if (!change.add(bytes)) return note_left_out(info.name.length_bytes);
    status = publish(ledger.was_ghost(info.name));
    if (!status.ok()) change.subtract(bytes);
  }
  if (status.code() == Code::kChanged) return;  // There already.
  if (!directory_.is_done(status)) return;
  directory_.index().add(info.name);
  written_bytes_.add(info.name.length_bytes);
}

// --- drafts ---

std::unique_ptr<ExtentDraft> ExtentWriter::begin_draft(const ExtentInfo& info,
                                                       std::uint64_t part_bytes) {
  if (!makes_nameless_ || !evictor_.reserve(info)) return nullptr;
  auto draft = make_draft(info, part_bytes);
  if (draft) return *std::move(draft);
  directory_.ledger().cancel(file_bytes(info.name));
  directory_.note_failure(draft.error());
  return nullptr;
}

Result<std::unique_ptr<ExtentDraft>> ExtentWriter::make_draft(const ExtentInfo& info,
                                                              std::uint64_t part_bytes) {
  HEADRACE_TRY_ASSIGN(const Fd folder,
                      directory_.index().open_bucket(bucket_of(info.name.object), true));
  return ExtentDraft::create(folder.get(), info, part_bytes, directory_.key());
}

void ExtentWriter::publish_draft(ExtentDraft& draft) {
  auto folder = directory_.index().open_bucket(bucket_of(draft.info().name.object), true);
  if (!folder) {
    directory_.note_failure(folder.error());
    return drop_draft(draft);
  }
  show(draft.info(), [&](bool was_hit) { return draft.publish(folder->get(), was_hit); });
}

void ExtentWriter::drop_draft(const ExtentDraft& draft) {
  directory_.ledger().cancel(file_bytes(draft.info().name));
}

void ExtentWriter::append_metrics(MetricList& out) const {
  append_counter(out, "cache.written_bytes", "bytes", written_bytes_.value());
  append_counter(out, "cache.skipped_bytes", "bytes", skipped_bytes_.value());
}

}  // namespace headrace::tier
