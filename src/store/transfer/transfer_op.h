#pragma once
/// \file
/// TransferOp: one accepted request (GetOp, PutOp, CallOp differ only in what they send and where
/// the answer goes) on its way through a reactor. Pooled by its handle, so a GET allocates nothing.
///
/// | state     | waits for                      | next                                       |
/// |-----------|--------------------------------|--------------------------------------------|
/// | kMailed   | the reactor to take its mail   | kPending, kFinished (invalid, cancelled)   |
/// | kPending  | its turn, and a connection     | kActive, kFinished (cancel, deadline)      |
/// | kActive   | the Connection that has it     | kFinished, kBackoff, kPending (stale       |
/// |           | (see there)                    | connection)                                |
/// | kBackoff  | its time to try again          | kPending, kFinished (cancel, deadline)     |
/// | kFinished | the consumer to take it        | back to the pool                           |
///
/// Threads: the reactor's from kMailed to kFinished, the consumer's otherwise; `is_cancelled` from
/// any.
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "headrace/store.h"
#include "net/mailbox.h"
#include "net/timer_heap.h"
#include "store/http_protocol.h"

namespace headrace::transfer {

class Connection;
struct Endpoint;
class HandleCore;

enum class LetterKind : std::uint8_t { kOp, kCancel, kResolved, kStop };
enum class TimerKind : std::uint8_t { kOp, kConnection };
enum class OpState : std::uint8_t { kMailed, kPending, kActive, kBackoff, kFinished };

struct TransferOp : Letter {
  TransferOp()
      : Letter(static_cast<std::uint8_t>(LetterKind::kOp)),
        timer(this, static_cast<std::uint8_t>(TimerKind::kOp)) {}

  HandleCore* handle = nullptr;
  Request request;                 ///< kGet, kPut, kPutPart; for calls only deadline and tag count.
  const HttpCall* call = nullptr;  ///< A control-plane call; outlives the op.
  HttpAnswer* answer = nullptr;
  bool is_beside = false;  ///< kActive: a call that waited for no turn, beside the transfers.
  TimePoint deadline{};

  OpState state = OpState::kMailed;
  Timer timer;  ///< Deadline; in kBackoff the time of the next attempt.
  Connection* connection = nullptr;
  Connection* hedge = nullptr;   ///< kActive: has the second attempt, while nobody has won.
  Connection* winner = nullptr;  ///< kActive: whose head came first; only it writes to the slab.
  bool is_awaiting = false;      ///< kActive: in the reactor's list of gets without an answer.
  TimePoint late_from{};         ///< kActive: since when it waits for the newest attempt's answer.
  std::uint64_t answered_before = 0;  ///< HedgePolicy::answered() at late_from.
  bool is_counted = false;            ///< Among the requests that hedges are a share of.
  TimePoint first_sent{};             ///< kActive: when the older of two attempts began.
  bool was_held_off = false;          ///< As in Completion, once finished; before: by a back-off.
  std::uint64_t throttle_count_before = 0;  ///< Of the reactor when it took the op.
  bool has_lost_answer = false;            ///< An attempt may have had an effect, and nobody knows.
  Endpoint* endpoint = nullptr;            ///< Where the next attempt goes.
  std::unique_ptr<HttpRedirect> redirect;  ///< Why that is not the protocol's own.
  std::uint32_t redirect_count = 0;
  std::uint32_t doubt_count = 0;        ///< Attempts that ended in Outcome::is_doubtful.
  std::uint32_t slow_count = 0;         ///< Attempts given up as slow: the next may take longer.
  bool is_waiting_for_address = false;  ///< kPending, in endpoint->waiting.
  std::uint32_t attempts = 0;
  bool was_sent = false;           ///< In one of them, in part at least.
  bool is_told_unreached = false;  ///< log_unreached().
  bool needs_fresh_connection = false;
  TimePoint submitted{}, sent{}, first_byte{}, finished{};
  Status last_failure;  ///< Of the attempt before; the cause when the deadline passes.

  Status status;
  std::uint64_t length_bytes = 0;
  std::uint64_t object_size_bytes = 0;
  std::string etag;
  std::string checksum;
  Checksum object_checksum;
  std::shared_ptr<const ObjectDetails> details;

  std::atomic<bool> is_cancelled{
      false};  ///< Set by the handle before its cancel letter; relaxed, the letter orders it.

  TransferOp* previous = nullptr;  ///< In the list of all ops of the reactor.
  TransferOp* following = nullptr;
  TransferOp* queue_next = nullptr;  ///< In the pending queue, or in the list of finished ops.
  TransferOp* queue_previous = nullptr;
  TransferOp* handle_previous = nullptr;  ///< In the handle's list of ops that it waits for.
  TransferOp* handle_next = nullptr;

  bool is_idempotent() const noexcept { return call == nullptr || call->is_idempotent; }
  bool is_upload() const noexcept {
    return call == nullptr && (request.op == Op::kPut || request.op == Op::kPutPart);
  }
  bool is_head() const noexcept {
    return call != nullptr ? call->method == "HEAD" : request.op == Op::kHead;
  }
};

/// Doubly linked queue through queue_next and queue_previous.
class OpQueue {
 public:
  bool empty() const noexcept { return first_ == nullptr; }
  TransferOp* front() const noexcept { return first_; }
  void push_back(TransferOp& op) noexcept {
    op.queue_next = nullptr;
    op.queue_previous = last_;
    (last_ != nullptr ? last_->queue_next : first_) = &op;
    last_ = &op;
  }
  void push_front(TransferOp& op) noexcept {
    op.queue_previous = nullptr;
    op.queue_next = first_;
    (first_ != nullptr ? first_->queue_previous : last_) = &op;
    first_ = &op;
  }
  void remove(TransferOp& op) noexcept {
    (op.queue_previous != nullptr ? op.queue_previous->queue_next : first_) = op.queue_next;
    (op.queue_next != nullptr ? op.queue_next->queue_previous : last_) = op.queue_previous;
    op.queue_next = op.queue_previous = nullptr;
  }
  /// Moves all of `other` to the end of this queue.
  void splice_back(OpQueue& other) noexcept {
    if (other.empty()) return;
    other.first_->queue_previous = last_;
    (last_ != nullptr ? last_->queue_next : first_) = other.first_;
    last_ = other.last_;
    other.first_ = other.last_ = nullptr;
  }

 private:
  TransferOp* first_ = nullptr;
  TransferOp* last_ = nullptr;
};

}  // namespace headrace::transfer
