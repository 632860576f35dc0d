#pragma once
/// \file
/// Reactor: one thread with its poller, connections, timers and ops. Ops come by letter and leave
/// to their HandleCore.
///
/// Threads: post() and counters() from any thread; the rest is its own thread's.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/random.h"
#include "net/mailbox.h"
#include "net/poller.h"
#include "net/timer_heap.h"
#include "store/transfer/connection.h"
#include "store/transfer/endpoint.h"
#include "store/transfer/endpoint_control.h"
#include "store/transfer/handle_core.h"
#include "store/transfer/hedge_policy.h"
#include "store/transfer/retry_policy.h"
#include "store/transfer/transfer_counters.h"
#include "store/transfer/transfer_op.h"

namespace headrace::transfer {

class Reactor {
 public:
  struct Options {
    std::size_t index = 0;  ///< Among the engine's reactors.
    std::size_t connection_limit = 1;
    RetryBudget::Options retry_budget;
    HedgePolicy::Options hedging;
    std::uint64_t seed = 0;
    EndpointControl* control = nullptr;  ///< Of all reactors of the engine; outlives them.
  };
  /// `protocol`, `network` and `store_options` must outlive the reactor.
  Reactor(std::unique_ptr<Poller> poller, HttpProtocol& protocol, Network& network,
          const StoreOptions& store_options, const Options& options);
  ~Reactor();  ///< Ends the thread. \pre all ops have finished
  Reactor(const Reactor&) = delete;
  Reactor& operator=(const Reactor&) = delete;

  /// Errors: kExhausted (no thread).
  Status start();

  /// Sends letters linked in any number of calls of push(), then ring() once.
  void push(Letter& letter) noexcept { mailbox_.push(letter); }
  /// Wakes the thread when it sleeps past `needed_at`, or when it has room for work.
  void ring(TimePoint needed_at) noexcept {
    if (mailbox_.should_wake(needed_at)) poller_->wake();
  }

  const TransferCounters& counters() const noexcept { return counters_; }
  const char* poller_name() const noexcept { return poller_->name(); }

 private:
  void run();
  void take_mail(TimePoint now);
  void accept(TransferOp& op, TimePoint now);
  void cancel_ops(CancelLetter& letter, TimePoint now);
  void cancel_op(TransferOp& op, TimePoint now);
  void abort(TransferOp& op, Status reason, TimePoint now);
  void on_resolved(Endpoint& endpoint, TimePoint now);
  void fire_timers(TimePoint now);
  void on_op_timer(TransferOp& op, TimePoint now);
  void start_pending(TimePoint now);
  OpQueue& queue_of(TransferOp& op) noexcept;
  void take_back(OpQueue& waiting) noexcept;
  TransferOp* next_to_start() const noexcept;
  Connection* pick_connection(TransferOp& op, TimePoint now);
  Connection* take_idle(const TransferOp& op, TimePoint now);
  bool has_addresses(Endpoint& endpoint, TimePoint now);
  void poll_once();
  bool has_room() const noexcept;
  Connection* open_connection(std::size_t limit);
  void retire(Connection& connection, TimePoint now);

  // reactor_control.cc: concurrency, hedges, pauses in which nobody looked at the sockets
  bool may_start(const TransferOp& op) const noexcept;
  bool may_go_beside() const noexcept;
  /// Transfers in flight, if the next is a small get.
  std::uint32_t most_active(bool is_small) const noexcept;
  void on_started(TransferOp& op, TimePoint now);
  void on_left_wire(TransferOp& op) noexcept;
  void count_time(TimePoint now) noexcept;
  void count_success(TransferOp& op, const Connection& connection, TimePoint now);
  void count_attempt(const Outcome& outcome) noexcept;
  void report(TimePoint now);
  /// Its newest attempt waits from now on.
  void await_answer(TransferOp& op, TimePoint now) noexcept;
  void stop_awaiting(TransferOp& op) noexcept;
  void check_late(TimePoint now);
  bool hedge(TransferOp& op, std::size_t late_count, TimePoint now);
  Connection* pick_hedge_connection(const TransferOp& op, TimePoint now);
  void drop_rival_of(TransferOp& op, Connection& connection, TimePoint now);
  bool survives(TransferOp& op, Connection& connection, TimePoint now);
  void notice_pause(TimePoint expected, TimePoint now) noexcept;
  bool is_excused(Timer& timer);

  void advance(Connection& connection, Progress progress, TimePoint now);
  void on_attempt_done(Connection& connection, TimePoint now);
  void follow(TransferOp& op, Outcome outcome, TimePoint now);
  void go_where_known(TransferOp& op, TimePoint now);
  void go_to(TransferOp& op, Endpoint& endpoint, std::unique_ptr<HttpRedirect> redirect);
  void on_attempt_failed(TransferOp& op, Outcome outcome, TimePoint now);
  void tell_unreached(TransferOp& op, const Outcome& outcome, const std::string& message,
                      TimePoint now);
  RetryDecision decide(TransferOp& op, const Outcome& outcome, TimePoint now);
  void finish(TransferOp& op, Status status, TimePoint now);
  void deliver();
  Status describe(const TransferOp& op, Code code, std::string_view what_happened,
                  TimePoint now) const;
  void log_hedge(const TransferOp& op, TimePoint now) const;
  std::string attempt_text(const TransferOp& op, TimePoint now) const;
  std::string name_of(const TransferOp& op) const;

  const StoreOptions& options_;
  HttpProtocol& protocol_;
  const Clock& clock_;
  const bool clock_runs_;  ///< runs_by_itself(clock_).
  const Options own_;
  const std::string log_subject_;
  std::unique_ptr<Poller> poller_;
  Mailbox mailbox_;
  Letter stop_letter_{static_cast<std::uint8_t>(LetterKind::kStop)};
  std::thread thread_;
  bool is_stopping_ = false;

  TimerHeap timers_;
  TransferCounters counters_;
  EndpointSet endpoints_;
  ConnectionContext context_;
  RetryOptions retry_options_;
  RetryBudget retry_budget_;
  Random random_;

  TransferOp* all_ = nullptr;  // every op here, through `following`
  OpQueue calls_;              // pending calls
  OpQueue pending_;            // the other pending ops
  std::vector<std::unique_ptr<Connection>> connections_;
  std::vector<Connection*> closed_;            // usable for new connections
  std::vector<Connection*> idle_;              // the last one was used last
  std::vector<HandleCore*> finished_handles_;  // with something in their outbox
  std::vector<PollEvent> events_;

  std::uint32_t active_ = 0;  // transfers on the wire, hedged ones once, and calls of many
  std::uint32_t beside_ = 0;  // calls on the wire that are not among them
  ControlSample sample_;      // since the last report
  TimePoint counted_until_{};
  TimePoint reported_at_{};
  HedgePolicy hedging_;
  OpQueue awaiting_[FirstByteTimes::kClassCount];  // gets, oldest attempt first
  TimePoint check_late_at_ = TimePoint::max();
  std::size_t disowned_ = 0;  // connections that wait for the kernel, without an op
  TimePoint polled_at_{};     // the sockets were looked at last
  TimePoint excused_until_{};
};

}  // namespace headrace::transfer
