// One turn of run(): letters, timers, late ones, new starts, completions out, then sleep.
//
// Invariants:
// - An op is in exactly one place: in the mail, among pending_, on a connection (on two while it
//   is hedged), in a timer (back-off), or finished. all_ links every op of this reactor, so that
//   stopping finds each of them wherever it is.
// - Only this thread touches an op between kMailed and kFinished. Its memory belongs to the
//   handle, which waits for the last one before it goes.
// - Completions leave in deliver(), once a turn: a consumer is woken once for all that came
//   together.
// - Nobody sleeps on work: begin_wait() fails when a letter has come since take_mail(), and ring()
//   from another thread wakes the poller only when it sleeps past the time that the letter is
//   needed at.
// - The thread ends when it was told to, no op is left, and the kernel has no buffer of ours
//   (disowned_ == 0).
#include "store/transfer/reactor.h"

#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <string>
#include <system_error>
#include <utility>

#include "base/check.h"
#include "base/running_clock.h"
#include "store/transfer/redirect.h"
#include "store/transfer/transfer_log.h"

namespace headrace::transfer {
namespace {

constexpr std::size_t kEventsPerPoll = 256;
// With a clock that is not the system's, nothing but looking tells when its time has come.
constexpr std::chrono::milliseconds kForeignClockSlice{1};
// How soon to ask again for credentials that are being fetched: short beside the fetch (STS, SSO:
// tens of milliseconds), long beside the price of asking.
constexpr std::chrono::milliseconds kCredentialsPoll{5};

// A request of which nothing has reached the server by so many attempts, or after so long, is told
// at once. The waits before the fifth are about 0.7 s together (RetryOptions), and a connection
// that nobody answers is given up after 3 s; the tenth attempt ends a quarter or half a minute
// later.
constexpr std::uint32_t kAttemptsUnreached = 5;
constexpr std::chrono::seconds kPatienceUnreached{2};
// Beyond the limit, for second attempts.
std::size_t hedge_connections(std::size_t limit) { return 2 + limit / 16; }

Status validate(const Request& request, const HttpProtocol& protocol) {
  if (request.key.empty()) return Status(Code::kInvalidArgument, "the key is empty");
  if (request.op == Op::kGet && request.length_bytes == 0) {
    return Status(Code::kInvalidArgument, "the range is empty");
  }
  if (request.op == Op::kHead && !protocol.takes_heads()) {
    return Status(Code::kUnsupported, "this store takes no requests for the head of an object");
  }
  if (request.offset_bytes + request.length_bytes < request.offset_bytes) {
    return Status(Code::kInvalidArgument, "the range ends past 2^64");
  }
  const std::size_t slab_bytes = request.slab.bytes().size();
  if (request.length_bytes > 0 && (request.slab_offset_bytes > slab_bytes ||
                                   request.length_bytes > slab_bytes - request.slab_offset_bytes)) {
    return Status(Code::kInvalidArgument, "the slab has room for " + std::to_string(slab_bytes) +
                                              " bytes, the request needs [" +
                                              std::to_string(request.slab_offset_bytes) + ", +" +
                                              std::to_string(request.length_bytes) + ")");
  }
  if (request.op == Op::kPutPart &&
      (request.upload_id.empty() || request.part_number < 1 || request.part_number > 10'000)) {
    return Status(Code::kInvalidArgument, "a part needs an upload id and a number of 1 to 10000");
  }
  return {};
}

}  // namespace

Reactor::Reactor(std::unique_ptr<Poller> poller, HttpProtocol& protocol, Network& network,
                 const StoreOptions& store_options, const Options& options)
    : options_(store_options),
      protocol_(protocol),
      clock_(*store_options.clock),
      clock_runs_(runs_by_itself(clock_)),
      own_(options),
      log_subject_(log_subject(store_options.url)),
      poller_(std::move(poller)),
      timers_(store_options.queue_capacity),
      endpoints_(protocol.endpoint(), network),
      context_{*poller_, timers_, protocol_, options_, clock_, counters_, hedging_},
      retry_budget_(options.retry_budget, clock_.now()),
      random_(options.seed),
      events_(kEventsPerPoll),
      hedging_(options.hedging) {
  retry_options_.max_attempts = store_options.max_attempts;
  const std::size_t most = own_.connection_limit + hedge_connections(own_.connection_limit);
  connections_.reserve(most);
  closed_.reserve(most);
  idle_.reserve(most);
  counted_until_ = reported_at_ = polled_at_ = clock_.now();
}

Reactor::~Reactor() {
  if (!thread_.joinable()) return;
  mailbox_.push(stop_letter_);
  ring(TimePoint::min());
  thread_.join();
}

Status Reactor::start() {
  // Signals are for the program's own threads.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  Status status;
  try {
    thread_ = std::thread([this] { run(); });
    pthread_setname_np(thread_.native_handle(), ("hr-net-" + std::to_string(own_.index)).c_str());
  } catch (const std::system_error& error) {
    status =
        Status(Code::kExhausted, std::string("cannot start a reactor thread: ") + error.what());
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return status;
}

void Reactor::run() {
  for (;;) {
    const TimePoint now = clock_.now();
    notice_pause(polled_at_, now);
    take_mail(now);
    fire_timers(now);
    if (now >= check_late_at_) check_late(now);
    if (now - reported_at_ >= kReportEvery) report(now);
    start_pending(now);
    deliver();
    if (is_stopping_ && all_ == nullptr && disowned_ == 0) break;
    poll_once();
  }
  endpoints_.abandon_lookups();
  for (auto& connection : connections_) connection->close();
}

void Reactor::poll_once() {
  const bool wants_work = calls_.empty() && pending_.empty() && has_room();
  const TimePoint until = std::min(timers_.next(), check_late_at_);
  if (!mailbox_.begin_wait(wants_work, until)) return;
  std::chrono::nanoseconds timeout(-1);
  const TimePoint before = clock_.now();
  notice_pause(polled_at_, before);
  if (until != TimePoint::max())
    timeout = std::max(std::chrono::nanoseconds(0), std::chrono::nanoseconds(until - before));
  if (!clock_runs_ && (timeout.count() < 0 || timeout > kForeignClockSlice))
    timeout = kForeignClockSlice;
  counters_.waits.add(1);
  const std::size_t count = poller_->poll(events_, timeout);
  mailbox_.end_wait();
  const TimePoint now = polled_at_ = clock_.now();
  if (timeout.count() >= 0) notice_pause(before + timeout, now);
  count_time(now);
  for (std::size_t i = 0; i < count; ++i) {
    auto& connection = *static_cast<Connection*>(events_[i].socket->owner);
    advance(connection, connection.on_event(events_[i], now), now);
    TransferOp* const op = connection.op();
    if (op != nullptr && op->winner == &connection) drop_rival_of(*op, connection, now);
  }
}

// --- letters ---

void Reactor::take_mail(TimePoint now) {
  for (Letter* letter = mailbox_.take_all(); letter != nullptr;) {
    Letter* next = letter->next;
    switch (static_cast<LetterKind>(letter->kind)) {
      case LetterKind::kOp:
        accept(*static_cast<TransferOp*>(letter), now);
        break;
      case LetterKind::kCancel:
        cancel_ops(*static_cast<CancelLetter*>(letter), now);
        break;
      case LetterKind::kResolved:
        on_resolved(static_cast<ResolvedLetter*>(letter)->endpoint, now);
        break;
      case LetterKind::kStop:
        is_stopping_ = true;
        break;
    }
    letter = next;
  }
}

void Reactor::accept(TransferOp& op, TimePoint now) {
  op.previous = nullptr;
  op.following = all_;
  if (all_ != nullptr) all_->previous = &op;
  all_ = &op;
  counters_.requests.add(1);
  op.throttle_count_before = counters_.throttles.get();
  if (op.is_cancelled.load(std::memory_order_relaxed))
    return finish(op, describe(op, Code::kCancelled, "cancelled", now), now);
  if (op.call == nullptr) {
    if (Status invalid = validate(op.request, protocol_); !invalid.ok()) {
      return finish(op, describe(op, invalid.code(), invalid.message(), now), now);
    }
  }
  if (op.needs_fresh_connection) counters_.fresh_requests.add(1);
  timers_.set(op.timer, op.deadline);
  op.state = OpState::kPending;
  go_to(op, endpoints_.home(), nullptr);
  go_where_known(op, now);
  queue_of(op).push_back(op);
}

void Reactor::cancel_ops(CancelLetter& letter, TimePoint now) {
  // Before looking, so that a cancel() from now on sends a letter of its own. An exchange, because
  // it reads the sender's: the flags set before that are visible here.
  static_cast<void>(letter.is_queued.exchange(false));
  HandleCore* handle = letter.handle;
  for (TransferOp* op = all_; op != nullptr;) {
    TransferOp* following = op->following;
    if (op->handle == handle && op->is_cancelled.load(std::memory_order_relaxed))
      cancel_op(*op, now);
    op = following;
  }
  handle->acknowledge(letter);
}

void Reactor::cancel_op(TransferOp& op, TimePoint now) {
  Status status = describe(op, Code::kCancelled, "cancelled", now);
  if (op.state == OpState::kActive) return abort(op, std::move(status), now);
  if (op.state == OpState::kPending) queue_of(op).remove(op);
  finish(op, std::move(status), now);
}

/// Ends an active op with `reason` as soon as the kernel has given its buffers back.
void Reactor::abort(TransferOp& op, Status reason, TimePoint now) {
  stop_awaiting(op);  // until then no second attempt may start
  Connection& connection = *op.connection;
  drop_rival_of(op, connection, now);
  advance(connection, connection.abort(std::move(reason)), now);
}

OpQueue& Reactor::queue_of(TransferOp& op) noexcept {
  if (op.is_waiting_for_address) return op.endpoint->waiting;
  return op.call != nullptr ? calls_ : pending_;
}

/// What waited for an address: older than all that came meanwhile.
void Reactor::take_back(OpQueue& waiting) noexcept {
  OpQueue calls;
  OpQueue others;
  while (!waiting.empty()) {
    TransferOp& op = *waiting.front();
    waiting.remove(op);
    op.is_waiting_for_address = false;
    (op.call != nullptr ? calls : others).push_back(op);
  }
  calls.splice_back(calls_);
  std::swap(calls, calls_);
  others.splice_back(pending_);
  std::swap(others, pending_);
}

void Reactor::on_resolved(Endpoint& endpoint, TimePoint now) {
  auto result = endpoint.lookup.take();
  if (!result) return;
  AddressBook& addresses = endpoint.addresses;
  if (*result) {
    addresses.harvest(**result, now, now + kAddressLifetime);
    return take_back(endpoint.waiting);
  }
  if (addresses.size() > 0) {  // the addresses of before are better than none
    addresses.extend(now + kAddressLifetime);
    return take_back(endpoint.waiting);
  }
  OpQueue waiting;
  std::swap(waiting, endpoint.waiting);
  while (!waiting.empty()) {
    TransferOp& op = *waiting.front();
    waiting.remove(op);
    op.is_waiting_for_address = false;
    ++op.attempts;
    counters_.attempts.add(1);
    Outcome outcome;
    outcome.status = result->error().clone();
    // An unknown host says of no object that it is not there.
    outcome.is_unknown_host = outcome.status.code() == Code::kNotFound;
    if (outcome.is_unknown_host)
      outcome.status = Status(Code::kUnavailable, std::string(outcome.status.message()));
    on_attempt_failed(op, std::move(outcome), now);
  }
}

// --- time ---

void Reactor::fire_timers(TimePoint now) {
  while (Timer* timer = timers_.pop_due(now)) {
    if (now < excused_until_ && is_excused(*timer)) continue;
    if (static_cast<TimerKind>(timer->kind) == TimerKind::kOp) {
      on_op_timer(*static_cast<TransferOp*>(timer->owner), now);
      continue;
    }
    auto& connection = *static_cast<Connection*>(timer->owner);
    const bool was_idle = connection.is_idle();
    advance(connection, connection.on_timer(now), now);
    if (was_idle && connection.is_closed()) {
      idle_.erase(std::find(idle_.begin(), idle_.end(), &connection));
      closed_.push_back(&connection);
    }
  }
}

void Reactor::on_op_timer(TransferOp& op, TimePoint now) {
  if (op.state == OpState::kBackoff) {
    timers_.set(op.timer, op.deadline);
    op.state = OpState::kPending;
    queue_of(op).push_front(op);  // older than all that wait
    return;
  }
  std::string what_happened = "the deadline passed";
  if (!op.last_failure.ok()) what_happened += " after: " + std::string(op.last_failure.message());
  Status status = describe(op, Code::kDeadline, what_happened, now);
  if (op.state == OpState::kActive) return abort(op, std::move(status), now);
  queue_of(op).remove(op);
  finish(op, std::move(status), now);
}

// --- connections ---

bool Reactor::has_addresses(Endpoint& endpoint, TimePoint now) {
  if (endpoint.addresses.is_fresh(now)) return true;
  if (!endpoint.lookup.is_running()) {
    const auto notify = [this, &endpoint] {
      mailbox_.push(endpoint.letter);
      ring(TimePoint::min());
    };
    Status started = endpoint.lookup.start(endpoint.connect_host, endpoint.connect_port, notify,
                                           options_.resolver);
    // Without a thread there is no look-up now; pending ops try again with the next event, at the
    // latest their deadline.
    if (!started.ok()) counters_.connect_failures.add(1);
  }
  return endpoint.addresses.size() > 0;  // stale ones will do while the look-up runs
}

Connection* Reactor::take_idle(const TransferOp& op, TimePoint now) {
  for (std::size_t i = idle_.size(); i-- > 0;) {
    Connection* connection = idle_[i];
    if (connection->endpoint() != op.endpoint) continue;
    idle_.erase(idle_.begin() + static_cast<std::ptrdiff_t>(i));
    if (connection->is_usable(op, now)) return connection;
    connection->close();
    closed_.push_back(connection);
  }
  return nullptr;
}

Connection* Reactor::pick_connection(TransferOp& op, TimePoint now) {
  // A call that must not be repeated takes no risk with a connection that the server may be closing
  // just now.
  const bool wants_fresh = op.needs_fresh_connection || !op.is_idempotent();
  if (!wants_fresh) {
    if (Connection* idle = take_idle(op, now)) return idle;
  }
  if (!has_addresses(*op.endpoint, now)) {
    if (!op.endpoint->lookup.is_running()) return nullptr;
    queue_of(op).remove(op);
    op.is_waiting_for_address = true;
    op.endpoint->waiting.push_back(op);
    return nullptr;
  }
  return open_connection(own_.connection_limit);
}

bool Reactor::has_room() const noexcept {
  const std::size_t open_count = connections_.size() - closed_.size();
  return active_ < most_active(true) && idle_.size() + own_.connection_limit > open_count;
}

Connection* Reactor::open_connection(std::size_t limit) {
  const std::size_t open_count = connections_.size() - closed_.size();
  if (open_count >= limit) {
    if (idle_.empty()) return nullptr;
    Connection* oldest = idle_.front();
    idle_.erase(idle_.begin());
    oldest->close();
    return oldest;
  }
  if (closed_.empty()) {
    connections_.push_back(std::make_unique<Connection>(context_));
    return connections_.back().get();
  }
  Connection* closed = closed_.back();
  closed_.pop_back();
  return closed;
}

TransferOp* Reactor::next_to_start() const noexcept {
  TransferOp* const call = calls_.front();
  TransferOp* const other = pending_.front();
  if (call == nullptr || other == nullptr) return call != nullptr ? call : other;
  return may_go_beside() || call->submitted <= other->submitted ? call : other;
}

void Reactor::start_pending(TimePoint now) {
  while (TransferOp* const next = next_to_start()) {
    TransferOp& op = *next;
    if (!may_start(op)) return;
    Connection* connection = pick_connection(op, now);
    if (connection == nullptr && op.is_waiting_for_address) continue;
    if (connection == nullptr) return;
    queue_of(op).remove(op);
    op.state = OpState::kActive;
    on_started(op, now);
    advance(*connection, connection->begin(op, now), now);
  }
}

void Reactor::advance(Connection& connection, Progress progress, TimePoint now) {
  if (progress == Progress::kDone) on_attempt_done(connection, now);
}

// --- ends ---

void Reactor::on_attempt_done(Connection& connection, TimePoint now) {
  if (connection.op() == nullptr) {
    --disowned_;
    return retire(connection, now);
  }
  TransferOp& op = *connection.op();
  if (op.hedge != nullptr) {
    if (survives(op, connection, now)) return;
    drop_rival_of(op, connection, now);
    if (op.winner == nullptr) connection.promote();  // the op's times are this attempt's
  }
  if (!connection.has_failed()) count_success(op, connection, now);
  Outcome outcome = connection.take_outcome();
  retire(connection, now);
  on_left_wire(op);
  count_attempt(outcome);
  if (outcome.status.ok()) {
    retry_budget_.on_success();
    return finish(op, {}, now);
  }
  on_attempt_failed(op, std::move(outcome), now);
}

void Reactor::retire(Connection& connection, TimePoint now) {
  if (connection.is_idle() && connection.is_welcome(now)) {
    connection.park(now);
    idle_.push_back(&connection);
    return;
  }
  if (!connection.is_closed()) connection.close();
  closed_.push_back(&connection);
}

/// Where the next attempt of `op` goes; the endpoint stays as long as it does.
void Reactor::go_to(TransferOp& op, Endpoint& endpoint, std::unique_ptr<HttpRedirect> redirect) {
  if (op.endpoint != nullptr) --op.endpoint->users;
  op.endpoint = &endpoint;
  ++endpoint.users;
  if (!redirect) op.redirect_count = 0;
  op.redirect = std::move(redirect);
}

/// To where the protocol knows the endpoint to send it.
void Reactor::go_where_known(TransferOp& op, TimePoint now) {
  if (op.call != nullptr || op.request.op != Op::kGet || op.needs_fresh_connection) return;
  auto known = protocol_.known_redirect(op.request);
  if (known == nullptr) return;
  // Without room for one more host the endpoint says what to do.
  if (auto endpoint = endpoints_.find_or_add(known->endpoint, now); endpoint)
    go_to(op, **endpoint, std::move(known));
}

void Reactor::follow(TransferOp& op, Outcome outcome, TimePoint now) {
  counters_.redirects.add(1);
  if (++op.redirect_count > kMaxRedirects) {
    Outcome lost;
    lost.status =
        Status(Code::kUnsupported, "redirected more than " + std::to_string(kMaxRedirects) +
                                       " times, last to " + outcome.redirect->host_field);
    lost.is_doubtful = lost.was_sent = true;
    return on_attempt_failed(op, std::move(lost), now);
  }
  auto endpoint = endpoints_.find_or_add(outcome.redirect->endpoint, now);
  if (!endpoint)
    return finish(op, describe(op, endpoint.error().code(), endpoint.error().message(), now), now);
  go_to(op, **endpoint, std::move(outcome.redirect));
  --op.attempts;  // a hop of the same attempt
  op.state = OpState::kPending;
  queue_of(op).push_front(op);
}

void Reactor::on_attempt_failed(TransferOp& op, Outcome outcome, TimePoint now) {
  const Code code = outcome.status.code();
  if (code == Code::kThrottled) counters_.throttles.add(1);
  if (code == Code::kCancelled || code == Code::kDeadline)
    return finish(op, std::move(outcome.status), now);
  if (outcome.is_not_ready && op.deadline > now) {
    op.last_failure = std::move(outcome.status);
    op.state = OpState::kBackoff;
    timers_.set(op.timer, std::min(op.deadline, now + kCredentialsPoll));
    return;
  }
  if (outcome.redirect) return follow(op, std::move(outcome), now);
  if (outcome.is_stale && op.is_idempotent()) {
    --op.attempts;
    if (outcome.was_sent) op.has_lost_answer = true;  // It may have been closed behind the work.
    counters_.stale_connections.add(1);
    op.needs_fresh_connection = true;
    op.state = OpState::kPending;
    queue_of(op).push_front(op);
    return;
  }
  if (outcome.is_slow) {
    ++op.slow_count;
    op.needs_fresh_connection = true;
  }
  if (outcome.is_hedged && op.deadline > now) {
    counters_.hedges.add(1);
    log_hedge(op, now);
    op.last_failure = std::move(outcome.status);
    op.state = OpState::kPending;
    queue_of(op).push_front(op);
    return;
  }
  const RetryDecision decision = decide(op, outcome, now);
  std::string message;
  if (!outcome.is_named) message = name_of(op) + ": ";
  message += outcome.status.message();
  const bool is_conditional = op.is_upload() && (op.request.if_absent || !op.request.etag.empty());
  if (code == Code::kChanged && is_conditional && op.has_lost_answer)
    message += ", perhaps by an earlier attempt of this request, whose answer was lost";
  if (outcome.was_sent && (is_retryable(code) || outcome.is_doubtful)) op.has_lost_answer = true;
  switch (decision.verdict) {
    case RetryVerdict::kRetry:
      counters_.retries.add(1);
      message += attempt_text(op, now);
      log_repeated(log_subject_, code, message);
      op.was_sent |= outcome.was_sent;
      tell_unreached(op, outcome, message, now);
      go_to(op, endpoints_.home(), nullptr);  // another one may have the object by now
      op.last_failure = std::move(outcome.status);
      op.was_held_off = true;
      op.state = OpState::kBackoff;
      timers_.set(op.timer, decision.at);
      return;
    case RetryVerdict::kDeadline:
      return finish(op,
                    Status(Code::kDeadline,
                           message + ", no time left for another attempt" + attempt_text(op, now)),
                    now);
    case RetryVerdict::kFinal:
      return finish(op, Status(code, message + attempt_text(op, now)), now);
  }
}

void Reactor::tell_unreached(TransferOp& op, const Outcome& outcome, const std::string& message,
                             TimePoint now) {
  if (op.was_sent || op.is_told_unreached || outcome.is_unknown_host) return;
  if (op.attempts < kAttemptsUnreached && now - op.submitted < kPatienceUnreached) return;
  op.is_told_unreached = true;
  log_unreached(log_subject_, message);
}

/// Whether and when `op` is tried again after this failure.
RetryDecision Reactor::decide(TransferOp& op, const Outcome& outcome, TimePoint now) {
  AttemptFailure failure;
  failure.code = outcome.status.code();
  if (outcome.is_doubtful) {
    op.needs_fresh_connection = true;
    // Like a lost connection; is_retryable() codes are that anyway.
    if (++op.doubt_count <= kDoubtfulRepeats) failure.code = Code::kUnavailable;
  }
  failure.attempts = op.attempts;
  failure.may_repeat = op.is_idempotent() || !outcome.was_sent;
  failure.is_rare = hedging_.is_calm();
  failure.retry_after = outcome.retry_after;
  RetryOptions options = retry_options_;
  if (outcome.is_unknown_host)
    options.max_attempts = std::min(options.max_attempts, kUnknownHostAttempts);
  return decide_retry(options, failure, now, op.deadline, retry_budget_, random_);
}

void Reactor::finish(TransferOp& op, Status status, TimePoint now) {
  op.is_waiting_for_address = false;
  if (op.endpoint != nullptr) --op.endpoint->users;
  op.endpoint = nullptr;
  op.redirect.reset();
  op.redirect_count = op.doubt_count = op.slow_count = 0;
  timers_.clear(op.timer);
  (op.previous != nullptr ? op.previous->following : all_) = op.following;
  if (op.following != nullptr) op.following->previous = op.previous;
  if (status.code() == Code::kCancelled) {
    counters_.cancellations.add(1);
  } else if (!status.ok()) {
    counters_.failures.add(1);
  }
  op.status = std::move(status);
  if (counters_.throttles.get() != op.throttle_count_before) op.was_held_off = true;
  op.finished = now;
  op.state = OpState::kFinished;
  HandleCore::Outbox& outbox = op.handle->outbox(own_.index);
  outbox.ops.push_back(op);
  if (!outbox.is_listed) {
    outbox.is_listed = true;
    finished_handles_.push_back(op.handle);
  }
}

void Reactor::deliver() {
  for (HandleCore* handle : finished_handles_) {
    HandleCore::Outbox& outbox = handle->outbox(own_.index);
    outbox.is_listed = false;
    handle->deliver(outbox.ops);
  }
  finished_handles_.clear();
}

// --- messages ---

std::string Reactor::name_of(const TransferOp& op) const {
  return op.call != nullptr ? op.call->what : protocol_.describe(op.request);
}

std::string Reactor::attempt_text(const TransferOp& op, TimePoint now) const {
  const auto elapsed = std::chrono::duration_cast<std::chrono::milliseconds>(now - op.submitted);
  return ", attempt " + std::to_string(op.attempts) + " of " +
         std::to_string(options_.max_attempts) + ", " + std::to_string(elapsed.count()) + " ms";
}

Status Reactor::describe(const TransferOp& op, Code code, std::string_view what_happened,
                         TimePoint now) const {
  return Status(code, name_of(op) + ": " + std::string(what_happened) + attempt_text(op, now));
}

}  // namespace headrace::transfer
