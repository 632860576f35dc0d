// How many transfers a reactor has on the wire, second attempts for late ones, and what follows
// from a sleep of the whole process.
#include <algorithm>
#include <utility>

#include "base/check.h"
#include "store/transfer/reactor.h"
#include "store/transfer/transfer_log.h"

namespace headrace::transfer {
namespace {

// Late gets looked at in one check; more late ones than this are an outage, and not hedged anyway.
constexpr std::size_t kLateLooks = 256;
constexpr std::chrono::milliseconds kLeastCheckInterval{1};
constexpr std::chrono::milliseconds kUnknownCheckInterval{20};
// A thread that sleeps so much longer than it asked for was stopped, and so was the whole process:
// SIGSTOP, a suspended machine, a debugger. What came meanwhile waits in the kernel.
constexpr std::chrono::seconds kLongPause{1};
constexpr std::chrono::seconds kExcuse{1};

double seconds_of(std::chrono::nanoseconds time) {
  return std::chrono::duration<double>(time).count();
}

Microseconds micros(std::chrono::nanoseconds time) {
  return std::chrono::duration_cast<Microseconds>(time);
}

/// A request of so little costs a store no more than its head: what a call of many counts for.
constexpr std::uint64_t kSmallBytes = std::uint64_t{64} << 10;

/// Calls on the wire that no control counts: somebody waits for each, and behind reads that hang it
/// would hang. Of more than that (deletions, copies by the server) each is one of many, and a store
/// takes only so many.
constexpr std::uint32_t kCallsBeside = 8;

bool is_get(const TransferOp& op) { return op.call == nullptr && op.request.op == Op::kGet; }

}  // namespace

// --- concurrency ---

bool Reactor::may_start(const TransferOp& op) const noexcept {
  const bool is_small =
      op.call != nullptr || (is_get(op) && op.request.length_bytes <= kSmallBytes);
  return (op.call != nullptr && may_go_beside()) || active_ < most_active(is_small);
}

bool Reactor::may_go_beside() const noexcept { return beside_ < kCallsBeside; }

std::uint32_t Reactor::most_active(bool is_small) const noexcept {
  // A first batch reads 64 samples singly: in one first-byte time, not in two.
  const std::uint32_t factor = is_small && !own_.control->is_measured() ? 2 : 1;
  return factor * own_.control->share(own_.index);
}

void Reactor::on_started(TransferOp& op, TimePoint now) {
  op.is_beside = op.call != nullptr && may_go_beside();
  ++(op.is_beside ? beside_ : active_);
  if (!is_get(op) || options_.hedge_fraction <= 0) return;
  // Redirects, stale connections and missing credentials bring the same request here again.
  if (!std::exchange(op.is_counted, true)) hedging_.on_request();
  op.first_sent = now;
  op.is_awaiting = true;
  await_answer(op, now);
  check_late_at_ = std::min(check_late_at_, now + kUnknownCheckInterval);
}

void Reactor::await_answer(TransferOp& op, TimePoint now) noexcept {
  op.late_from = now;
  op.answered_before = hedging_.answered();
  awaiting_[FirstByteTimes::class_of(op.request.length_bytes)].push_back(op);
}

void Reactor::on_left_wire(TransferOp& op) noexcept {
  op.winner = nullptr;
  --(op.is_beside ? beside_ : active_);
  stop_awaiting(op);
}

void Reactor::stop_awaiting(TransferOp& op) noexcept {
  if (!op.is_awaiting) return;
  op.is_awaiting = false;
  awaiting_[FirstByteTimes::class_of(op.request.length_bytes)].remove(op);
}

void Reactor::count_time(TimePoint now) noexcept {
  if (!own_.control->is_adaptive()) return;
  if (active_ * 4 >= own_.control->share(own_.index) * 3) {
    const double elapsed_s = seconds_of(now - counted_until_);
    sample_.used_s += elapsed_s;
    sample_.in_flight_s += elapsed_s * active_;
  }
  counted_until_ = now;
}

void Reactor::count_success(TransferOp& op, const Connection& connection, TimePoint now) {
  const std::uint64_t asked_bytes = op.call != nullptr ? kSmallBytes : op.request.length_bytes;
  if (op.is_beside || asked_bytes == 0) return;
  const Microseconds first_byte = micros(op.first_byte - op.sent);
  if (is_get(op)) {
    // Of two attempts the younger one's time says little; the older one waited at least so long.
    const TimePoint from = connection.is_hedge() ? op.first_sent : op.sent;
    const Microseconds answer = std::max(micros(op.first_byte - from), Microseconds(0));
    hedging_.on_first_byte(op.request.length_bytes, answer);
    counters_.answered_gets.add(1);
    counters_.answer_wait_us.add(static_cast<std::uint64_t>(answer.count()));
    counters_.first_byte_us.record(static_cast<std::uint64_t>(answer.count()));
    hedging_.on_body(op.length_bytes, micros(now - op.first_byte));
    if (connection.is_hedge()) counters_.hedges_won.add(1);
    // The op's: a connection that the answer has closed belongs to none.
    AddressBook& addresses = op.endpoint->addresses;
    if (addresses.size() > 1) {
      addresses.report(connection.address(),
                       {op.length_bytes, first_byte, micros(now - op.first_byte)}, now);
    }
  }
  if (!own_.control->is_adaptive()) return;
  if (active_ * 4 < own_.control->share(own_.index) * 3) return;
  const auto bytes = is_get(op) ? op.length_bytes : asked_bytes;
  const double took_s = seconds_of(now - op.sent);
  ++sample_.completions;
  sample_.bytes += bytes;
  sample_.busy_s += took_s;
  sample_.byte_seconds += took_s * static_cast<double>(bytes);
  sample_.first_byte_s += seconds_of(first_byte);
}

void Reactor::count_attempt(const Outcome& outcome) noexcept {
  if (outcome.is_not_ready || outcome.redirect) return;
  const Code code = outcome.status.code();
  if (code == Code::kCancelled || code == Code::kDeadline) return;
  ++sample_.attempts;
  if (code == Code::kThrottled) ++sample_.throttles;
  hedging_.on_attempt((is_retryable(code) && !outcome.is_stale) || outcome.is_doubtful,
                      outcome.is_timeout || (outcome.is_slow && !outcome.is_hedged));
}

void Reactor::report(TimePoint now) {
  reported_at_ = now;
  if (!own_.control->is_adaptive() || (sample_.attempts == 0 && sample_.used_s == 0)) return;
  own_.control->report(own_.index, std::exchange(sample_, ControlSample{}), active_,
                       !pending_.empty() || !calls_.empty(), now);
}

// --- late answers ---

void Reactor::check_late(TimePoint now) {
  check_late_at_ = TimePoint::max();
  for (std::size_t size_class = 0; size_class < FirstByteTimes::kClassCount; ++size_class) {
    OpQueue& queue = awaiting_[size_class];
    while (!queue.empty() && queue.front()->first_byte != TimePoint{})
      stop_awaiting(*queue.front());
    if (queue.empty()) continue;
    const Microseconds late_after = hedging_.late_after(queue.front()->request.length_bytes);
    if (late_after == Microseconds::max()) {
      check_late_at_ = std::min(check_late_at_, now + kUnknownCheckInterval);
      continue;
    }
    std::size_t late_count = 0;
    std::size_t looks = 0;
    for (TransferOp* op = queue.front();
         op != nullptr && op->late_from + late_after <= now && looks < kLateLooks;
         op = op->queue_next, ++looks) {
      if (op->first_byte == TimePoint{}) ++late_count;
    }
    TimePoint next_check = now + std::max(late_after / 4, Microseconds(kLeastCheckInterval));
    for (TransferOp* op = queue.front(); op != nullptr && op->late_from + late_after <= now;) {
      TransferOp* const following = op->queue_next;
      if (op->first_byte != TimePoint{}) {
        stop_awaiting(*op);
      } else if (!hedge(*op, late_count, now)) {
        break;
      }
      op = following;
    }
    if (queue.empty()) continue;
    next_check = std::max(next_check, queue.front()->late_from + late_after);
    check_late_at_ = std::min(check_late_at_, next_check);
  }
}

bool Reactor::hedge(TransferOp& op, std::size_t late_count, TimePoint now) {
  const bool is_far = hedging_.is_far(op.request.length_bytes, micros(now - op.late_from));
  const std::uint64_t others = active_ + (hedging_.answered() - op.answered_before);
  if (!hedging_.take(late_count, others, is_far)) return false;
  Connection* const connection = pick_hedge_connection(op, now);
  if (connection == nullptr) {
    hedging_.give_back();
    return false;
  }
  if (op.hedge != nullptr) {  // both are late: the older one has had its time
    Connection& younger = *op.hedge;
    drop_rival_of(op, younger, now);
    younger.promote();
  }
  counters_.hedges.add(1);
  log_hedge(op, now);
  awaiting_[FirstByteTimes::class_of(op.request.length_bytes)].remove(op);
  await_answer(op, now);
  advance(*connection, connection->begin(op, now), now);
  return true;
}

void Reactor::log_hedge(const TransferOp& op, TimePoint now) const {
  log_hedged(log_subject_, [&] { return name_of(op) + attempt_text(op, now); });
}

Connection* Reactor::pick_hedge_connection(const TransferOp& op, TimePoint now) {
  AddressBook& addresses = op.endpoint->addresses;
  if (op.request.fresh_connection) {
    // Only a new one will do.
  } else if (addresses.size() < 2) {
    if (Connection* idle = take_idle(op, now)) return idle;
  } else {
    for (std::size_t i = idle_.size(); i-- > 0;) {
      Connection* const idle = idle_[i];
      const bool is_elsewhere = idle->endpoint() == op.endpoint &&
                                !is_same_address(idle->address(), op.connection->address());
      if (!is_elsewhere || !idle->is_usable(op, now)) continue;
      idle_.erase(idle_.begin() + static_cast<std::ptrdiff_t>(i));
      return idle;
    }
  }
  if (addresses.size() == 0) return nullptr;
  return open_connection(connections_.capacity());
}

void Reactor::drop_rival_of(TransferOp& op, Connection& connection, TimePoint now) {
  if (op.hedge == nullptr) return;
  Connection& rival = op.connection == &connection ? *op.hedge : *op.connection;
  op.connection = &connection;
  op.hedge = nullptr;
  const Progress progress = rival.disown();
  if (progress == Progress::kDone) return retire(rival, now);
  ++disowned_;
}

bool Reactor::survives(TransferOp& op, Connection& connection, TimePoint now) {
  if (op.winner != nullptr || !connection.has_failed() || connection.is_final()) return false;
  Connection& other = op.connection == &connection ? *op.hedge : *op.connection;
  Outcome outcome = connection.take_outcome();
  const Code code = outcome.status.code();
  if (code == Code::kThrottled) counters_.throttles.add(1);
  count_attempt(outcome);
  retire(connection, now);
  op.connection = &other;
  op.hedge = nullptr;
  other.promote();
  return true;
}

// --- pauses ---

/// Nobody looked at the sockets until `now`, much later than expected: the process was stopped, or
/// a turn took long, since the memory that it received into was touched for the first time. What is
/// late by our clock may have come long ago, and no server is to blame.
void Reactor::notice_pause(TimePoint expected, TimePoint now) noexcept {
  if (clock_runs_ && now - expected > kLongPause) excused_until_ = now + kExcuse;
}

bool Reactor::is_excused(Timer& timer) {
  if (static_cast<TimerKind>(timer.kind) == TimerKind::kOp) {
    const auto& op = *static_cast<TransferOp*>(timer.owner);
    if (op.state != OpState::kActive) return false;
  } else if (static_cast<Connection*>(timer.owner)->op() == nullptr) {
    return false;
  }
  timers_.set(timer, excused_until_);
  return true;
}

}  // namespace headrace::transfer
