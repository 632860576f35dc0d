// The thread that calls run() lists and decides what is to be copied (Lister), the movers copy,
// and the end has one order: the listing ends, the queue is closed, the movers end, then the
// blocking calls that are still under way (end_calls()); only then are objects deleted that the
// source does not have. Deletion comes last, and only after a listing and copies without a
// failure: a listing that broke off would make everything behind it look superfluous.
//
// Movers, and with them store handles and memory, are made before the job runs, so that what can
// be refused is refused by create(). A limit of threads only makes fewer of them.
#include <algorithm>
#include <thread>
#include <utility>

#include "base/start_thread.h"
#include "copy/lister.h"
#include "copy/mover.h"
#include "copy/transfer.h"
#include "headrace/copy.h"
#include "headrace/machine.h"

namespace headrace {
namespace {

using copy_detail::Counts;
using copy_detail::Lister;
using copy_detail::Mover;
using copy_detail::Transfer;

// More threads than this hinder each other in the directories they write.
constexpr std::uint32_t kMostLanes = 4;

Status check(const Store& to, const CopyOptions& options) {
  const auto refuse = [](const char* why) { return Status(Code::kInvalidArgument, why); };
  if (options.max_in_flight == 0) return refuse("copy: max_in_flight is 0");
  if (options.memory_bytes < std::uint64_t{1} << 20)
    return refuse("copy: less than 1 MiB of memory");
  for (const CopyTask& task : options.tasks) {
    if (task.is_tree && task.strip_bytes > task.from.size())
      return refuse("copy: more bytes to strip than the prefix has");
    if (!task.is_tree && task.from.empty()) return refuse("copy: an empty key");
    if (task.is_tree && !task.version_id.empty())
      return refuse("copy: a version is that of one object, not of a tree");
  }
  if (options.deletes_extra && options.flattens)
    return refuse("copy: a flattened tree does not tell what is superfluous at its target");
  // A tree deletes below its target what is not in its own source: another task's objects would go.
  if (options.deletes_extra && may_meet(options.tasks, false))
    return refuse("copy: with deletion, no target may be below another task's");
  if (!to.traits().can_write)
    return Status(Code::kUnsupported, "copy: " + to.url() + " cannot be written to");
  return {};
}

class Job final : public CopyJob {
 public:
  Job(Store& from, Store& to, const CopyOptions& options, std::unique_ptr<SlabPool> pool)
      : transfer_(from, to, options, std::move(pool)) {}

  /// Movers, before the job runs. Errors: those of new_handle().
  Status prepare() {
    const CopyOptions& options = transfer_.options();
    if (options.is_dry_run) return {};
    std::uint32_t count = options.thread_count;
    if (count == 0) count = std::clamp(available_cores() / 2, 1U, kMostLanes);
    // Each mover has its share of the requests under way, one at least.
    count = std::min(count, options.max_in_flight);
    for (std::uint32_t i = 0; i < count; ++i) {
      HEADRACE_TRY_ASSIGN(auto mover, Mover::create(transfer_, options.max_in_flight / count));
      transfer_.queue().add_sleeper(mover.get());
      movers_.push_back(std::move(mover));
    }
    return {};
  }

  Status run(std::stop_token stop) override {
    const std::stop_callback link(stop, [this] { transfer_.request_stop(); });
    std::vector<std::thread> threads;
    threads.reserve(movers_.size());
    for (auto& mover : movers_) {
      std::thread thread;
      if (!start_thread(thread, [&mover] { mover->run(); })) break;  // Fewer do it too.
      threads.push_back(std::move(thread));
    }
    if (threads.empty() && !movers_.empty())
      return Status(Code::kExhausted, "copy: no thread can be started");
    Lister lister(transfer_);
    Status status = lister.run();
    if (status.ok()) transfer_.counts().is_listing_done = true;
    transfer_.queue().close();
    for (std::thread& thread : threads) thread.join();
    transfer_.end_calls();
    const bool is_complete = status.ok() && transfer_.counts().failed == 0;
    if (is_complete && !transfer_.is_stopped()) status = lister.delete_extra();
    Status reason = transfer_.take_reason();
    if (!reason.ok()) return reason;
    // A stop that came after the last object changed nothing.
    const Counts& counts = transfer_.counts();
    const bool has_ended = counts.is_listing_done && counts.done + counts.failed >= counts.found &&
                           !transfer_.options().deletes_extra;
    if (transfer_.is_stopped() && !has_ended) return Status(Code::kCancelled, "cancelled");
    return status;
  }

  CopyProgress progress() const override {
    const Counts& counts = transfer_.counts();
    CopyProgress out;
    out.is_listing_done = counts.is_listing_done;
    out.done_count = counts.done;
    out.done_bytes = counts.done_bytes;
    out.resumed_bytes = counts.resumed_bytes;
    out.skipped_count = counts.skipped;
    out.deleted_count = counts.deleted;
    out.failed_count = counts.failed;
    out.found_count = counts.found;
    out.found_bytes = counts.found_bytes;
    return out;
  }
  std::vector<CopyEvent> take_events() override { return transfer_.take_events(); }
  std::vector<CopyFailure> failures() const override { return transfer_.failures(); }

 private:
  mutable Transfer transfer_;
  std::vector<std::unique_ptr<Mover>> movers_;
};

}  // namespace

Result<std::unique_ptr<CopyJob>> CopyJob::create(Store& from, Store& to,
                                                 const CopyOptions& options) {
  HEADRACE_TRY(check(to, options));
  HEADRACE_TRY_ASSIGN(auto pool, SlabPool::create({.limit_bytes = options.memory_bytes}));
  auto job = std::make_unique<Job>(from, to, options, std::move(pool));
  HEADRACE_TRY(job->prepare());
  return std::unique_ptr<CopyJob>(std::move(job));
}

}  // namespace headrace
