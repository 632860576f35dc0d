#pragma once
/// \file
/// HandleCore: what a TransferHandle and the reactors share: the pool of its ops, the ops that
/// finished, and who waits. Owned by the engine and reused, never freed before it: a reactor may
/// still signal one whose handle is gone.
///
/// Threads: submitting side from any thread, taking side from the consumer, deliver() from
/// reactors.
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <stop_token>
#include <vector>

#include "base/mutex.h"
#include "headrace/store.h"
#include "store/transfer/transfer_op.h"

namespace headrace::transfer {

class Reactor;
class HandleCore;

/// Tells one reactor to look for cancelled ops of a handle.
struct CancelLetter : Letter {
  CancelLetter() : Letter(static_cast<std::uint8_t>(LetterKind::kCancel)) {}
  HandleCore* handle = nullptr;
  std::atomic<bool> is_queued{
      false};  ///< Exchanged by sender and reactor: at most once in the mailbox.
};

class HandleCore {
 public:
  /// `reactors` must outlive the core.
  HandleCore(std::span<const std::unique_ptr<Reactor>> reactors, const StoreOptions& options);

  std::size_t submit(std::span<Request> requests);
  /// Accepts one call; it ends in a completion with `tag` 0. False after stop().
  bool submit_call(const HttpCall& call, HttpAnswer& answer, TimePoint deadline);
  std::size_t wait(std::span<Completion> out, TimePoint until, std::stop_token stop);
  void wake() noexcept;
  void cancel(std::uint64_t tag);
  void stop() noexcept;
  /// stop(), waits for all ops, drops their completions, and makes the core ready for another
  /// handle.
  void retire();

  /// Takes over finished ops (none left in `ops`) and wakes the consumer when it waits. Reactor
  /// threads.
  void deliver(OpQueue& ops);
  /// Reactor threads: the letter has been taken.
  void acknowledge(CancelLetter& letter);

  /// Finished ops of the current reactor turn; only with one reactor per element, see
  /// Reactor::finish().
  struct Outbox {
    OpQueue ops;
    bool is_listed = false;
  };
  Outbox& outbox(std::size_t reactor_index) { return outboxes_[reactor_index]; }

 private:
  TransferOp* allocate() HEADRACE_REQUIRES(submit_mutex_);
  void accept(TransferOp& op, TimePoint now, TimePoint deadline) HEADRACE_REQUIRES(submit_mutex_);
  void release(OpQueue& ops);
  void send_cancel_letters() HEADRACE_REQUIRES(submit_mutex_);
  void take(TransferOp& op, Completion& out);

  const std::span<const std::unique_ptr<Reactor>> reactors_;
  const StoreOptions& options_;
  const Clock& clock_;
  std::vector<Outbox> outboxes_;  // each by its reactor only
  std::unique_ptr<CancelLetter[]> cancel_letters_;

  Mutex submit_mutex_;
  std::deque<TransferOp> storage_ HEADRACE_GUARDED_BY(submit_mutex_);
  OpQueue free_ HEADRACE_GUARDED_BY(submit_mutex_);
  TransferOp* outstanding_first_ HEADRACE_GUARDED_BY(submit_mutex_) =
      nullptr;  // through handle_next
  std::size_t outstanding_count_ HEADRACE_GUARDED_BY(submit_mutex_) = 0;
  std::size_t next_reactor_ HEADRACE_GUARDED_BY(submit_mutex_) = 0;
  bool is_stopped_ HEADRACE_GUARDED_BY(submit_mutex_) = false;

  Mutex done_mutex_;
  std::condition_variable done_changed_;
  OpQueue done_ HEADRACE_GUARDED_BY(done_mutex_);
  bool is_woken_ HEADRACE_GUARDED_BY(done_mutex_) = false;
  bool is_waiting_ HEADRACE_GUARDED_BY(done_mutex_) = false;
  std::size_t letters_under_way_ HEADRACE_GUARDED_BY(done_mutex_) = 0;
};

}  // namespace headrace::transfer
