// One thread waits for both ends of a copy. It sleeps on the source's handle (events_); a second
// thread takes the completions of writes and wakes it, since nobody can wait for two handles.
//
// Invariants:
// - in_flight_ counts units that were started and have not ended; a unit that was read keeps its
//   slab for the write, so memory bounds both together.
// - Units are started in the order of the queue while memory lasts. Nobody holds memory while he
//   waits for more: a unit takes its slab and goes, or stays in pulled_ without one.
#include "copy/mover.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/check.h"
#include "base/errno_status.h"
#include "base/start_thread.h"
#include "store/file/file_io.h"
#include "store/file/file_key.h"
#include "store/upload_parts.h"

namespace headrace::copy_detail {
namespace {

// Units taken from the queue at a time: enough that its lock does not count, few enough that movers
// end together.
constexpr std::size_t kBatch = 32;
constexpr std::chrono::milliseconds kMemoryPause{20};
/// Between looks at what has arrived of parts that have not ended.
constexpr std::chrono::milliseconds kLookPause{10};
// A store that answers small requests one by one would wake this thread, and then the store's, for
// each. While twice as many are under way, a pause gathers some: at 20,000 answers a second, 8.
constexpr std::size_t kGather = 16;
constexpr std::chrono::microseconds kGatherPause{400};

/// Copies [offset, offset + length) from file to file inside the kernel.
Status copy_range(int from, int to, std::uint64_t offset_bytes, std::uint64_t length_bytes,
                  const std::stop_token& stop) {
  auto in = static_cast<off_t>(offset_bytes);
  off_t out = in;
  while (length_bytes > 0) {
    if (stop.stop_requested()) return Status(Code::kCancelled, "cancelled");
    const ssize_t count = ::copy_file_range(from, &in, to, &out, length_bytes, 0);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return errno_status(errno, "copy");
    if (count == 0) return Status(Code::kChanged, "the file became shorter while it was read");
    length_bytes -= static_cast<std::uint64_t>(count);
  }
  return {};
}

}  // namespace

Mover::Mover(Transfer& transfer, std::uint32_t max_in_flight)
    : transfer_(transfer), max_in_flight_(max_in_flight), completions_(64) {}

Result<std::unique_ptr<Mover>> Mover::create(Transfer& transfer, std::uint32_t max_in_flight) {
  std::unique_ptr<Mover> mover(new Mover(transfer, max_in_flight));
  if (transfer.from_directory().empty()) {
    HEADRACE_TRY_ASSIGN(mover->source_, transfer.from().new_handle());
  }
  if (transfer.local_target() != nullptr) {
    mover->writer_ = std::make_unique<SmallFileWriter>(*transfer.local_target());
  } else {
    HEADRACE_TRY_ASSIGN(mover->target_, transfer.to().new_handle());
  }
  mover->events_ = mover->source_ ? mover->source_.get() : mover->target_.get();
  return mover;
}

Mover::~Mover() { HEADRACE_CHECK(in_flight_ == 0); }

void Mover::ring() noexcept {
  if (events_ != nullptr) return events_->wake();
  {
    MutexLock lock(mutex_);
    is_rung_ = true;
  }
  rung_.notify_one();
}

void Mover::run() {
  if (source_ && target_) {
    if (!start_thread(writes_, [this] { serve_writes(); }))
      transfer_.give_up(Status(Code::kExhausted, "copy: no thread can be started"));
  }
  while (!transfer_.is_stopped()) {
    fill();
    if (in_flight_ == 0 && pulled_.empty() && transfer_.queue().is_drained()) break;
    sleep();
  }
  drain();
  if (writes_.joinable()) {
    ends_writes_ = true;
    target_->wake();
    writes_.join();
  }
}

/// Starts units while there is room for them.
void Mover::fill() {
  flush();
  is_hungry = false;
  while (in_flight_ < max_in_flight_ && !transfer_.is_stopped()) {
    if (pulled_.empty()) {
      const std::size_t room = std::min<std::size_t>(kBatch, max_in_flight_ - in_flight_);
      if (!transfer_.queue().pull(pulled_, room)) {
        // Told before it looks again: whoever adds later sees it.
        is_hungry = true;
        if (!transfer_.queue().pull(pulled_, room)) break;
        is_hungry = false;
      }
      std::reverse(pulled_.begin(), pulled_.end());
    }
    if (!start(pulled_.back())) break;
    pulled_.pop_back();
  }
  flush();
}

/// False when it has to wait for memory.
bool Mover::start(Unit& unit) {
  if (unit.large && unit.large->has_failed) {
    end(unit, {});
    return true;
  }
  if (!source_ && !target_) return move_locally(unit);
  const std::uint64_t length = unit.length_bytes();
  Slab slab;
  if (length > 0) {
    auto has_memory = acquire(length, slab);
    if (!has_memory) {
      end(unit, std::move(has_memory).error());
      return true;
    }
    if (!*has_memory) return false;
  }
  if (source_ && length > 0) {
    start_read(std::move(unit), std::move(slab));
    return true;
  }
  if (source_ && target_ && !unit.item.details) {
    transfer_.look_up(std::move(unit.item));
    return true;
  }
  Status status = source_ ? Status() : read_local(unit, slab);
  if (!status.ok()) {
    end(unit, std::move(status));
    return true;
  }
  if (writer_) {  // an empty object of a store
    end_write(unit, writer_->write(unit.item.to_key, {}, transfer_.publish_options(unit.item)));
    return true;
  }
  auto op = std::make_unique<Op>();
  op->unit = std::move(unit);
  ++in_flight_;
  const std::shared_ptr<const ObjectDetails> details = op->unit.item.details;
  start_write(std::move(op), std::move(slab), details.get());
  return true;
}

Result<bool> Mover::acquire(std::uint64_t length_bytes, Slab& out) {
  auto slab = transfer_.pool().try_acquire(length_bytes);
  // Others hold the memory: what is in flight here or in another mover will give it back.
  if (!slab && in_flight_ == 0)
    slab = transfer_.pool().acquire(length_bytes, system_clock().now() + kMemoryPause);
  if (!slab) {
    const Code code = slab.error().code();
    if (code == Code::kExhausted || code == Code::kDeadline) return false;
    return std::move(slab).error();
  }
  out = *std::move(slab);
  return true;
}

/// Both ends are files.
bool Mover::move_locally(Unit& unit) {
  if (unit.large) {
    end(unit, copy_file_part(unit));
    return true;
  }
  Slab slab;
  Status status;
  if (unit.item.size_bytes > 0) {
    auto has_memory = acquire(unit.item.size_bytes, slab);
    if (has_memory && !*has_memory) return false;
    if (!has_memory) status = std::move(has_memory).error();
  }
  if (status.ok()) status = read_local(unit, slab);
  if (!status.ok()) {
    end(unit, std::move(status));
    return true;
  }
  end_write(unit,
            writer_->write(unit.item.to_key, slab.bytes(), transfer_.publish_options(unit.item)));
  return true;
}

Status Mover::copy_file_part(const Unit& unit) {
  LargeCopy& large = *unit.large;
  const std::uint64_t offset = large.offset_of(unit.part);
  Status status = copy_range(large.local_source.get(), large.file->fd(), offset,
                             large.length_of(unit.part), transfer_.stop_token());
  if (status.code() != Code::kInvalidArgument && status.code() != Code::kUnsupported &&
      status.code() != Code::kInternal) {
    return status;
  }
  // Across file systems that cannot do it in the kernel.
  Slab slab;
  HEADRACE_TRY_ASSIGN(slab, transfer_.pool().acquire(large.length_of(unit.part), TimePoint::max()));
  const Interrupt interrupt(system_clock(), TimePoint::max(), transfer_.stop_token());
  HEADRACE_TRY(file::read_exactly(large.local_source.get(), offset, slab.bytes(), interrupt));
  return large.file->write_part(unit.part, slab.bytes());
}

/// Reads a unit from its file. The small ones are opened for it.
Status Mover::read_local(Unit& unit, Slab& slab) {
  const Interrupt interrupt(system_clock(), TimePoint::max(), transfer_.stop_token());
  if (unit.large) {
    const LargeCopy& large = *unit.large;
    return read_file(large.local_source.get(), large.direct_source ? large.direct_source.get() : -1,
                     large.offset_of(unit.part), slab.bytes())
        .annotate("read " + large.item.from_key);
  }
  const Item& item = unit.item;
  HEADRACE_TRY(file::check_key(item.from_key));
  struct stat info {};
  HEADRACE_TRY_ASSIGN(const Fd fd,
                      file::open_object(transfer_.from_directory() + "/" + item.from_key, info));
  unit.item.mode = info.st_mode & 0777;
  if (static_cast<std::uint64_t>(info.st_size) != item.size_bytes ||
      file::etag_of(info) != item.etag) {
    return Status(Code::kChanged, item.from_key + ": the file was written to since it was listed");
  }
  if (item.size_bytes == 0) HEADRACE_TRY(file::check_empty(fd.get()).annotate(item.from_key));
  HEADRACE_TRY(
      file::read_exactly(fd.get(), 0, slab.bytes(), interrupt).annotate("read " + item.from_key));
  return file::check_unchanged(fd.get(), info).annotate(item.from_key);
}

void Mover::start_read(Unit&& unit, Slab slab) {
  auto op = std::make_unique<Op>();
  op->unit = std::move(unit);
  const Item& item = op->item();
  Request request;
  request.key = item.from_key;
  request.etag = item.etag;
  request.version_id = item.version_id;
  request.offset_bytes = op->unit.large ? op->unit.large->offset_of(op->unit.part) : 0;
  request.length_bytes = slab.bytes().size();
  // Of a large object that goes to a store they were asked for before. Files have none: they are
  // only told that, for which what a cache has need not be fetched.
  request.wants_details = writer_ ? op->unit.part == 0 && KeptSettings::tells_files() &&
                                        !source_->holds(item.from_key, item.etag,
                                                        request.offset_bytes, request.length_bytes)
                                  : !op->unit.large;
  request.slab = std::move(slab);
  request.tag = reinterpret_cast<std::uintptr_t>(op.release());
  unsent_.push(std::move(request));
  ++in_flight_;
}

/// `details`: of the source, when it is a store's and the unit a small object.
void Mover::start_write(std::unique_ptr<Op> op, Slab slab, const ObjectDetails* details) {
  op->is_write = true;
  const Unit& unit = op->unit;
  Request request;
  request.key = op->item().to_key;
  request.length_bytes = slab.bytes().size();
  request.slab = std::move(slab);
  request.op = unit.large ? headrace::Op::kPutPart : headrace::Op::kPut;
  if (unit.large) {
    request.upload_id = unit.large->upload_id;
    request.part_number = unit.part + 1;
  } else {
    request.if_absent = transfer_.keeps_existing() && !unit.item.is_unconditional;
    op->settings = transfer_.settings().of(unit.item.from_key, details);
    request.settings = op->settings.get();
  }
  request.tag = reinterpret_cast<std::uintptr_t>(op.release());
  if (!source_) return unsent_.push(std::move(request));
  MutexLock lock(unsent_mutex_);
  unsent_writes_.push(std::move(request));
}

/// Submits what is ready; the store may take only a part of it.
void Mover::flush() {
  if (!unsent_.is_empty()) unsent_.flush(*events_);
  if (!source_ || !target_) return;
  MutexLock lock(unsent_mutex_);
  unsent_writes_.flush(*target_);
}

/// Waits for completions or a ring, and deals with what came.
void Mover::sleep() {
  if (events_ == nullptr) {
    if (!pulled_.empty()) return;  // acquire() has waited
    MutexLock lock(mutex_);
    while (!is_rung_) lock.wait(rung_);
    is_rung_ = false;
    return;
  }
  const bool waits_for_memory = !pulled_.empty() && in_flight_ < max_in_flight_;
  TimePoint until = unsent_.retry_at(TimePoint::max());
  if (writes_.joinable()) {
    MutexLock lock(unsent_mutex_);
    until = unsent_writes_.retry_at(until);
  }
  if (waits_for_memory) until = std::min(until, system_clock().now() + kMemoryPause);
  const bool looks = source_ && transfer_.queue().waits_for_window();
  if (looks) until = std::min(until, system_clock().now() + kLookPause);
  if (last_count_ < kGather && in_flight_ >= 2 * kGather) std::this_thread::sleep_for(kGatherPause);
  const std::size_t count = events_->wait(completions_, until, transfer_.stop_token());
  last_count_ = count;
  for (Completion& completion : std::span(completions_).first(count)) take(completion);
  if (looks) look_at_arrivals();
}

/// Of the source alone: what was sent may lie in this machine's buffers.
void Mover::look_at_arrivals() {
  MetricList metrics;
  source_->append_metrics(metrics);
  for (const Metric& metric : metrics) {
    if (metric.name == "store.received_bytes")
      transfer_.queue().see_arrived(static_cast<std::uint64_t>(metric.value));
  }
}

void Mover::take(Completion& completion) {
  std::unique_ptr<Op> op(reinterpret_cast<Op*>(static_cast<std::uintptr_t>(completion.tag)));
  if (op->is_write) {
    take_write(std::move(op), completion);
  } else {
    take_read(std::move(op), completion);
  }
}

void Mover::take_read(std::unique_ptr<Op> op, Completion& completion) {
  Unit& unit = op->unit;
  const bool is_whole =
      completion.object_size_bytes == 0 || completion.object_size_bytes == op->item().size_bytes;
  if (completion.status.ok() && is_whole && target_ && !transfer_.is_stopped()) {
    static const ObjectDetails kNone;
    return start_write(std::move(op), std::move(completion.slab),
                       completion.details ? completion.details.get() : &kNone);
  }
  Status status = std::move(completion.status);
  if (status.ok() && !is_whole)  // a store without versions
    status = Status(Code::kChanged, op->item().from_key + ": changed since it was listed");
  if (status.ok() && !writer_) status = Status(Code::kCancelled, "cancelled");
  const bool is_write = status.ok();
  if (is_write) {
    status = unit.large ? unit.large->file->write_part(unit.part, completion.slab.bytes())
                        : writer_->write(unit.item.to_key, completion.slab.bytes(),
                                         transfer_.publish_options(unit.item));
    if (status.ok() && completion.details)
      transfer_.settings().tell_file(op->item().from_key, *completion.details);
  }
  completion.slab = Slab();
  --in_flight_;
  if (is_write) return end_write(unit, std::move(status));
  end(unit, std::move(status));
}

/// In the thread of run(), or that of serve_writes().
void Mover::take_write(std::unique_ptr<Op> op, Completion& completion) {
  Unit& unit = op->unit;
  completion.slab = Slab();
  if (unit.large && completion.status.ok()) {
    UploadedPart part = arrived_part(unit.part + 1, unit.length_bytes(), completion);
    MutexLock lock(unit.large->mutex);
    unit.large->parts.push_back(std::move(part));
  }
  end_write(unit, std::move(completion.status));
  --in_flight_;
}

/// The write of a unit has ended.
void Mover::end_write(Unit& unit, Status status) {
  const bool is_conditional =
      !unit.large && transfer_.keeps_existing() && !unit.item.is_unconditional;
  if (is_conditional && status.code() == Code::kChanged) return transfer_.skip(unit.item);
  if (is_conditional && target_ && status.code() == Code::kUnsupported)
    return transfer_.retry_unconditional(std::move(unit.item));
  end(unit, std::move(status));
}

/// A unit has ended: well when `status` is ok.
void Mover::end(Unit& unit, Status status) {
  if (unit.large) {
    const bool has_moved = status.ok() && !unit.large->has_failed;
    const std::uint64_t moved = has_moved ? unit.large->length_of(unit.part) : 0;
    if (!status.ok()) unit.large->fail(std::move(status));
    transfer_.end_part(unit, moved);
  } else if (status.ok()) {
    transfer_.succeed(unit.item, unit.item.size_bytes);
  } else if (status.code() == Code::kChanged) {
    transfer_.retry_changed(std::move(unit.item), std::move(status));
  } else {
    transfer_.fail(unit.item, std::move(status));
  }
}

/// Ends what is in flight and what was pulled but not begun.
void Mover::drain() {
  if (source_) source_->stop();
  if (target_) target_->stop();
  const auto drop = [this](const std::vector<Request>& requests) {
    for (const Request& request : requests) {
      std::unique_ptr<Op> op(reinterpret_cast<Op*>(static_cast<std::uintptr_t>(request.tag)));
      --in_flight_;
      end(op->unit, Status(Code::kCancelled, "cancelled"));
    }
  };
  for (Unit& unit : pulled_) end(unit, Status(Code::kCancelled, "cancelled"));
  pulled_.clear();
  drop(unsent_.take_back_all());
  while (true) {
    {
      std::vector<Request> writes;
      {
        MutexLock lock(unsent_mutex_);
        writes = unsent_writes_.take_back_all();
      }
      drop(writes);
    }
    if (in_flight_ == 0) return;
    const std::size_t count = events_->wait(completions_, system_clock().now() + kMemoryPause, {});
    for (Completion& completion : std::span(completions_).first(count)) take(completion);
  }
}

void Mover::serve_writes() {
  std::vector<Completion> completions(64);
  while (true) {
    const std::size_t count = target_->wait(completions, TimePoint::max(), {});
    for (Completion& completion : std::span(completions).first(count)) take(completion);
    if (count > 0) source_->wake();
    if (ends_writes_ && in_flight_ == 0) return;
    // A stopped handle with nothing in flight does not wait.
    if (count == 0) std::this_thread::yield();
  }
}

}  // namespace headrace::copy_detail
