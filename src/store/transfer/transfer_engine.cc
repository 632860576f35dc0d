// Who keeps whom: handles keep the EngineCore, which owns the reactors and all handle cores; so
// the threads end with the last of engine and handles. A HandleCore is never freed before that,
// since a reactor may be about to signal one whose handle has gone; it is used again by the next
// handle.
//
// What belongs to an endpoint is divided among the reactors when they start, so that they need not
// ask each other: connections (the first ones get what the division leaves over), and the retry
// budget. Only the limit on requests in flight is shared, through EndpointControl.
//
// Blocking calls are ordinary ops with a handle of their own. call() may not return before its op
// has ended, cancelled or not: the op points to its arguments.
#include "store/transfer/transfer_engine.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "base/random.h"
#include "insight/counter.h"
#include "store/transfer/engine_core.h"

namespace headrace {
namespace transfer {
namespace {

StoreOptions with_defaults(StoreOptions options) {
  if (options.clock == nullptr) options.clock = &system_clock();
  if (options.reactor_count == 0) options.reactor_count = 1;
  // A reactor without a connection would never serve what it is given.
  options.reactor_count = std::min(options.reactor_count, options.max_in_flight);
  if (options.retry_seed == 0) {
    options.retry_seed =
        static_cast<std::uint64_t>(options.clock->now().time_since_epoch().count());
  }
  return options;
}

Status check_options(const StoreOptions& options) {
  if (options.max_in_flight == 0)
    return Status(Code::kInvalidArgument, "max_in_flight must be at least 1");
  if (options.queue_capacity == 0)
    return Status(Code::kInvalidArgument, "queue_capacity must be at least 1");
  if (options.max_attempts == 0)
    return Status(Code::kInvalidArgument, "max_attempts must be at least 1");
  const std::array timeouts{options.default_timeout, options.connect_timeout,
                            options.first_byte_timeout, options.progress_timeout};
  for (const auto timeout : timeouts) {
    if (timeout.count() <= 0) return Status(Code::kInvalidArgument, "timeouts must be positive");
  }
  return {};
}

// Of small requests twice as many (Reactor::may_start). Stores that collapse under more than 8 or
// 32 large ones are not found within 10 s from 64 on (bench/control.py).
constexpr std::uint32_t kInitialInFlight = 32;

EndpointControl::Options control_options(const StoreOptions& options,
                                         const HttpProtocol& protocol) {
  EndpointControl::Options control;
  const EndpointRules rules = protocol.rules();
  control.law.ceiling = options.max_in_flight;
  control.law.initial = kInitialInFlight;
  control.law.initial_rate = rules.initial_reads_per_second;
  control.law.doubling = rules.doubling;
  control.law.seed = options.retry_seed;
  control.is_adaptive = options.is_adaptive;
  control.reactor_count = options.reactor_count;
  control.directory = options.control_directory;
  control.endpoint = protocol.endpoint().host + ":" + std::to_string(protocol.endpoint().port);
  // Engines of a process differ by their address, processes by their number and time.
  static_assert(sizeof(std::uintptr_t) <= sizeof(std::uint64_t));
  control.id = mix64(mix64(static_cast<std::uint64_t>(::getpid())) ^
                     static_cast<std::uint64_t>(system_clock().now().time_since_epoch().count()) ^
                     reinterpret_cast<std::uintptr_t>(&options)) |
               1;
  return control;
}

}  // namespace

Result<std::unique_ptr<Poller>> create_poller(PollerKind kind) {
  switch (kind) {
    case PollerKind::kUring:
      return create_uring_poller();
    case PollerKind::kEpoll:
      return create_epoll_poller();
    case PollerKind::kAuto:
      break;
  }
  return create_best_poller();
}

EngineCore::EngineCore(std::shared_ptr<HttpProtocol> protocol, const StoreOptions& options,
                       NetSettings network)
    : protocol_(std::move(protocol)), options_(options), network_(std::move(network)) {}

EngineCore::~EngineCore() = default;

Result<std::shared_ptr<EngineCore>> EngineCore::create(std::shared_ptr<HttpProtocol> protocol,
                                                       const StoreOptions& options,
                                                       NetSettings network) {
  HEADRACE_TRY(check_options(options));
  auto core =
      std::make_shared<EngineCore>(std::move(protocol), with_defaults(options), std::move(network));
  // Made here, though reactors use it: authorities that cannot be read fail the opening, not a
  // request.
  if (core->protocol_->endpoint().use_tls) {
    const auto tls = core->network_.tls();
    if (!tls) return tls.error().clone();
  }
  const StoreOptions& settled = core->options_;
  const std::uint32_t count = settled.reactor_count;
  core->control_ = std::make_unique<EndpointControl>(control_options(settled, *core->protocol_),
                                                     settled.clock->now());
  for (std::uint32_t i = 0; i < count; ++i) {
    HEADRACE_TRY_ASSIGN(auto poller, create_poller(settled.poller));
    Reactor::Options own;
    own.index = i;
    own.connection_limit =
        settled.max_in_flight / count + (i < settled.max_in_flight % count ? 1 : 0);
    // All that are under way may be refused at the same time, and some more.
    own.retry_budget.capacity =
        std::max(own.retry_budget.capacity, 1.25 * settled.max_in_flight) / count;
    own.retry_budget.per_second /= count;
    own.seed = mix64(settled.retry_seed + i);
    own.hedging.fraction = settled.hedge_fraction;
    own.hedging.deadline_ceiling = settled.first_byte_timeout;
    own.control = core->control_.get();
    core->reactors_.push_back(std::make_unique<Reactor>(std::move(poller), *core->protocol_,
                                                        core->network_, settled, own));
    HEADRACE_TRY(core->reactors_.back()->start());
  }
  return core;
}

HandleCore* EngineCore::acquire_handle() {
  MutexLock lock(mutex_);
  if (free_handles_.empty()) {
    handles_.push_back(std::make_unique<HandleCore>(reactors_, options_));
    // So that release_handle(), which destructors call, allocates nothing.
    free_handles_.reserve(handles_.size());
    return handles_.back().get();
  }
  HandleCore* handle = free_handles_.back();
  free_handles_.pop_back();
  return handle;
}

void EngineCore::release_handle(HandleCore* handle) {
  handle->retire();
  MutexLock lock(mutex_);
  free_handles_.push_back(handle);
}

Result<HttpAnswer> EngineCore::call(const HttpCall& call, const CallOptions& call_options) {
  if (call_options.stop.stop_requested())
    return Status(Code::kCancelled, call.what + ": cancelled");
  HandleCore* handle = acquire_handle();
  HttpAnswer answer;
  handle->submit_call(call, answer, call_options.deadline);
  Completion completion;
  if (handle->wait({&completion, 1}, TimePoint::max(), call_options.stop) == 0) {
    // The completion of a call has tag 0.
    handle->cancel(0);
    while (handle->wait({&completion, 1}, TimePoint::max(), {}) == 0) {
    }
  }
  release_handle(handle);
  if (!completion.status.ok()) return std::move(completion.status);
  return answer;
}

void EngineCore::append_metrics(MetricList& out) const {
  struct Row {
    const char* name;
    const char* unit;
    Counter TransferCounters::*counter;
  };
  static constexpr Row kRows[] = {
      {"store.requests", "requests", &TransferCounters::requests},
      {"store.attempts", "attempts", &TransferCounters::attempts},
      {"store.received_bytes", "bytes", &TransferCounters::received_bytes},
      {"store.sent_bytes", "bytes", &TransferCounters::sent_bytes},
      {"store.retries", "attempts", &TransferCounters::retries},
      {"store.throttles", "attempts", &TransferCounters::throttles},
      {"store.timeouts", "attempts", &TransferCounters::timeouts},
      {"store.failures", "requests", &TransferCounters::failures},
      {"store.cancellations", "requests", &TransferCounters::cancellations},
      {"store.connections_opened", "connections", &TransferCounters::connections_opened},
      {"store.connect_failures", "connections", &TransferCounters::connect_failures},
      {"store.tls_handshakes", "connections", &TransferCounters::tls_handshakes},
      {"store.tls_resumptions", "connections", &TransferCounters::tls_resumptions},
      {"store.redirects", "requests", &TransferCounters::redirects},
      {"store.checksum_failures", "attempts", &TransferCounters::checksum_failures},
      {"store.hedges", "attempts", &TransferCounters::hedges},
      {"store.hedges_won", "attempts", &TransferCounters::hedges_won},
      {"store.stale_connections", "connections", &TransferCounters::stale_connections},
      {"store.fresh_requests", "requests", &TransferCounters::fresh_requests},
      {"store.reactor_waits", "calls", &TransferCounters::waits},
      {"store.answered_gets", "requests", &TransferCounters::answered_gets},
      {"store.answer_wait_us", "us", &TransferCounters::answer_wait_us},
  };
  for (const Row& row : kRows) {
    std::uint64_t sum = 0;
    for (const auto& reactor : reactors_) sum += (reactor->counters().*row.counter).get();
    append_counter(out, row.name, row.unit, sum);
  }
  MetricList answers;
  for (const auto& reactor : reactors_)
    reactor->counters().first_byte_us.append_to(answers, "store.first_byte", "us");
  for (Metric& metric : sum_of(answers)) out.push_back(std::move(metric));
  control_->append_metrics(out);
}

}  // namespace transfer

TransferHandle::TransferHandle(std::shared_ptr<transfer::EngineCore> engine,
                               transfer::HandleCore* core)
    : engine_(std::move(engine)), core_(core) {}
TransferHandle::~TransferHandle() { engine_->release_handle(core_); }
std::size_t TransferHandle::submit(std::span<Request> requests) { return core_->submit(requests); }
std::size_t TransferHandle::wait(std::span<Completion> out, TimePoint until, std::stop_token stop) {
  return core_->wait(out, until, std::move(stop));
}
void TransferHandle::wake() noexcept { core_->wake(); }
void TransferHandle::cancel(std::uint64_t tag) { core_->cancel(tag); }
void TransferHandle::stop() noexcept { core_->stop(); }

TransferEngine::TransferEngine(std::shared_ptr<transfer::EngineCore> core)
    : core_(std::move(core)) {}
TransferEngine::~TransferEngine() = default;

Result<std::shared_ptr<TransferEngine>> TransferEngine::create(
    std::shared_ptr<HttpProtocol> protocol, const StoreOptions& options) {
  return create(std::move(protocol), options, Environment{});
}

Result<std::shared_ptr<TransferEngine>> TransferEngine::create(
    std::shared_ptr<HttpProtocol> protocol, const StoreOptions& options,
    const Environment& environment) {
  HEADRACE_TRY_ASSIGN(NetSettings network, resolve_net_settings(options, environment));
  return create(std::move(protocol), options, std::move(network));
}

Result<std::shared_ptr<TransferEngine>> TransferEngine::create(
    std::shared_ptr<HttpProtocol> protocol, const StoreOptions& options, NetSettings network) {
  HEADRACE_TRY_ASSIGN(
      auto core, transfer::EngineCore::create(std::move(protocol), options, std::move(network)));
  return std::shared_ptr<TransferEngine>(new TransferEngine(std::move(core)));
}

std::unique_ptr<TransferHandle> TransferEngine::new_handle() {
  return std::unique_ptr<TransferHandle>(new TransferHandle(core_, core_->acquire_handle()));
}

std::string TransferEngine::origin() const { return core_->origin(); }

Result<HttpAnswer> TransferEngine::call(const HttpCall& call, const CallOptions& call_options) {
  return core_->call(call, call_options);
}

TimePoint TransferEngine::deadline_of(const CallOptions& call_options,
                                      std::chrono::milliseconds at_least) const noexcept {
  const StoreOptions& options = core_->options();
  if (call_options.deadline != TimePoint::max()) return call_options.deadline;
  return options.clock->now() + std::max(options.default_timeout, at_least);
}

Clock& TransferEngine::clock() const noexcept { return *core_->options().clock; }

void TransferEngine::append_metrics(MetricList& out) const { core_->append_metrics(out); }
const char* TransferEngine::poller_name() const noexcept { return core_->poller_name(); }

}  // namespace headrace
