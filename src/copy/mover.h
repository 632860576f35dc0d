#pragma once
/// \file
/// Mover: one thread that moves units: reads them from the source and writes them to the target,
/// many requests in flight. Local files are read and written by the mover itself.
///
/// Threads: run() is the thread's body; ring() from any thread. Between two stores that both have
/// to be waited for, a second thread takes the completions of the writes.
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "copy/transfer.h"
#include "store/submit_queue.h"

namespace headrace::copy_detail {

class Mover final : public Sleeper {
 public:
  /// Errors: those of Store::new_handle().
  static Result<std::unique_ptr<Mover>> create(Transfer& transfer, std::uint32_t max_in_flight);
  ~Mover() override;
  void run();
  void ring() noexcept override;

 private:
  /// One request or two, one after the other, for a unit.
  struct Op {
    Unit unit;
    bool is_write = false;
    std::shared_ptr<const ObjectSettings> settings;  // Of the write.
    const Item& item() const noexcept { return unit.large ? unit.large->item : unit.item; }
  };

  explicit Mover(Transfer& transfer, std::uint32_t max_in_flight);

  void fill();
  bool start(Unit& unit);
  void start_read(Unit&& unit, Slab slab);
  void start_write(std::unique_ptr<Op> op, Slab slab, const ObjectDetails* details);
  /// False when others hold the memory. Errors: kInvalidArgument (more than there is at all).
  Result<bool> acquire(std::uint64_t length_bytes, Slab& out);
  bool move_locally(Unit& unit);
  Status copy_file_part(const Unit& unit);
  Status read_local(Unit& unit, Slab& slab);
  void flush();
  void sleep();
  void look_at_arrivals();
  void take(Completion& completion);
  void take_read(std::unique_ptr<Op> op, Completion& completion);
  void take_write(std::unique_ptr<Op> op, Completion& completion);
  void end_write(Unit& unit, Status status);
  void end(Unit& unit, Status status);
  void drain();
  void serve_writes();

  Transfer& transfer_;
  const std::uint32_t max_in_flight_;
  std::unique_ptr<Store> source_, target_;   // Handles; null for local files.
  Store* events_ = nullptr;                  // The one that run() waits on; null: both are local.
  std::unique_ptr<SmallFileWriter> writer_;  // Null unless the target is files.
  std::vector<Unit> pulled_;  // Newest last; taken from the back of a reversed batch.
  Outbox unsent_;
  std::vector<Completion> completions_;
  std::size_t last_count_ = 0;  // of completions that came together
  std::atomic<std::uint32_t> in_flight_{0};
  std::thread writes_;
  std::atomic<bool> ends_writes_{false};
  Mutex unsent_mutex_;
  Outbox unsent_writes_ HEADRACE_GUARDED_BY(unsent_mutex_);
  Mutex mutex_;  // For the sleep of a mover without a store to wait on.
  std::condition_variable rung_;
  bool is_rung_ HEADRACE_GUARDED_BY(mutex_) = false;
};

}  // namespace headrace::copy_detail
