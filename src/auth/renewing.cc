// States of a renewal (Phase): kIdle, kWanted (the thread is to fetch), kFetching, kDone (an
// outcome waits). The thread only fetches; what an outcome means is decided in settle(), by the
// next caller of current(), with that caller's clock. So nothing happens while nobody asks, and
// tests need no time to pass.
//
// - The old secret serves while a new one is fetched, until it ends or the store refuses it.
// - A refused secret is not handed out again: should the source bring the same one, that is the
//   error.
// - Pauses are measured from the failure by the caller's clock; a clock that was set back ends one
//   early rather than prolonging it.
// - fetch_ runs without the lock: current() and invalidate() never wait for a network.
#include "auth/renewing.h"

#include <fmt/format.h>

#include "base/start_thread.h"
#include "headrace/log.h"
#include "http/date.h"

namespace headrace::auth {
namespace detail {
namespace {

// Rounds that failed by what may pass (a network that is not up yet) before callers hear kDenied:
// with the default pauses some ten seconds.
constexpr int kPatientRounds = 3;
// Between failed renewals while the old secret serves: relaxed, and near its end.
constexpr std::chrono::seconds kRelaxedPause{60};
constexpr std::chrono::seconds kUrgentPause{10};
constexpr std::string_view kLogArea = "credentials";

void log_fetched(std::string_view what, bool is_first, const std::optional<WallTime>& expires) {
  const LogLevel level = is_first ? LogLevel::kDebug : LogLevel::kInfo;
  if (!process_log().wants(level)) return;
  const std::string until =
      expires ? ", valid until " + http::format_http_date(*expires) : std::string();
  process_log().write(level, kLogArea,
                      fmt::format("{}: {}{}", what, is_first ? "fetched" : "renewed", until));
}

}  // namespace

RenewalCore::RenewalCore(RenewalOptions options, Fetch fetch, Equal equal)
    : options_(std::move(options)), fetch_(std::move(fetch)), equal_(equal) {}

RenewalCore::~RenewalCore() {
  std::jthread thread;  // joined last
  {
    MutexLock lock(mutex_);
    thread = std::move(thread_);
  }
  thread.request_stop();
  MutexLock lock(mutex_);
  changed_.notify_all();
}

Result<RenewalCore::Value> RenewalCore::current(WallTime now) {
  MutexLock lock(mutex_);
  settle(now);
  if (phase_ == Phase::kIdle && is_due(now)) want();
  if (is_usable(now)) return value_;
  return why_not();
}

bool RenewalCore::is_usable(WallTime now) const {
  return value_ != nullptr && !is_refused_ && (!expires_ || now < *expires_);
}

bool RenewalCore::is_due(WallTime now) const {
  // A clock that was set back must not hold the next try up: no pause is longer than itself.
  if (pause_.count() > 0 && now < failed_at_ + pause_ && now >= failed_at_) return false;
  if (!is_usable(now)) return true;
  return expires_ && now >= renew_at_;
}

void RenewalCore::want() {
  phase_ = Phase::kWanted;
  if (!thread_.joinable() &&
      !start_thread(thread_, [this](std::stop_token stop) { run(std::move(stop)); })) {
    outcome_.emplace(Status(Code::kUnavailable, "no thread can be started to fetch them"));
    phase_ = Phase::kDone;
    return;
  }
  changed_.notify_all();
}

void RenewalCore::settle(WallTime now) {
  if (phase_ != Phase::kDone) return;
  phase_ = Phase::kIdle;
  Result<Fetched> outcome = *std::move(outcome_);
  outcome_.reset();
  if (!outcome) return note_failure(std::move(outcome).error(), now);
  if (is_refused_ && equal_(value_.get(), outcome->value.get())) {
    return note_failure(Status(Code::kDenied,
                               "the store refuses them, and their source still "
                               "hands out the same ones"),
                        now);
  }
  if (outcome->expires && now >= *outcome->expires) {
    return note_failure(Status(Code::kDenied,
                               "their source hands out ones that have already expired; check the "
                               "clock of this machine, and the source"),
                        now);
  }
  accept(*std::move(outcome), now);
}

void RenewalCore::accept(Fetched fetched, WallTime now) {
  log_fetched(options_.what, value_ == nullptr, fetched.expires);
  value_ = std::move(fetched.value);
  expires_ = fetched.expires;
  is_refused_ = false;
  failed_rounds_ = 0;
  pause_ = std::chrono::seconds(0);
  if (!expires_) return;
  const std::chrono::seconds life = *expires_ - now;
  renew_at_ = std::max(*expires_ - std::min(options_.advisory_margin, life / 4),
                       now + std::chrono::seconds(1));
  urgent_at_ = *expires_ - std::min(options_.mandatory_margin, life / 6);
}

void RenewalCore::note_failure(Status failure, WallTime now) {
  failure_ = std::move(failure);
  failed_at_ = now;
  ++failed_rounds_;
  if (is_usable(now)) {
    pause_ = now < urgent_at_ ? kRelaxedPause : kUrgentPause;
    if (expires_) pause_ = std::clamp(*expires_ - now, std::chrono::seconds(1), pause_);
    log_failure(now);
    return;
  }
  const int doublings = std::min(failed_rounds_ - 1, 10);
  pause_ = std::min(options_.round_pause * (1 << doublings), options_.max_round_pause);
}

/// Nothing else tells of it before the secret ends.
void RenewalCore::log_failure(WallTime now) const {
  if (!process_log().wants(LogLevel::kWarning)) return;
  const std::string rest =
      expires_ ? fmt::format("end in {} s", (*expires_ - now).count()) : std::string("do not end");
  process_log().write(LogLevel::kWarning, kLogArea,
                      fmt::format("{}: could not be renewed: {}; the present ones {}, next try in "
                                  "{} s",
                                  options_.what, failure_.message(), rest, pause_.count()));
}

Status RenewalCore::why_not() const {
  const bool is_under_way = phase_ != Phase::kIdle;
  if (failed_rounds_ == 0) {
    return Status(Code::kUnavailable, options_.what + ": being fetched");
  }
  const bool may_pass = is_retryable(failure_.code()) && failed_rounds_ < kPatientRounds;
  return Status(is_under_way || may_pass ? Code::kUnavailable : Code::kDenied,
                options_.what + ": " + std::string(failure_.message()));
}

bool RenewalCore::invalidate(const void* refused) {
  MutexLock lock(mutex_);
  const bool is_under_way = phase_ != Phase::kIdle;
  if (value_ == nullptr) return is_under_way;
  if (!equal_(value_.get(), refused)) return true;
  if (is_refused_) return is_under_way;
  is_refused_ = true;
  failed_rounds_ = 0;
  pause_ = std::chrono::seconds(0);
  // A fetch that is under way, or whose outcome waits to be settled, may be older than the refusal;
  // should it bring the same secret, settle() reports that and a later round tries again.
  if (phase_ == Phase::kIdle) want();
  return true;
}

void RenewalCore::run(std::stop_token stop) {
  MutexLock lock(mutex_);
  while (true) {
    while (phase_ != Phase::kWanted && !stop.stop_requested()) lock.wait(changed_);
    if (stop.stop_requested()) return;
    phase_ = Phase::kFetching;
    lock.unlock();
    auto outcome = fetch_round(stop);
    lock.lock();
    outcome_ = std::move(outcome);
    phase_ = Phase::kDone;
  }
}

Result<RenewalCore::Fetched> RenewalCore::fetch_round(const std::stop_token& stop) {
  auto pause = options_.attempt_pause;
  for (int attempt = 1;; ++attempt, pause *= 2) {
    auto outcome = fetch_(stop);
    if (outcome || !is_retryable(outcome.error().code()) || attempt >= options_.attempts)
      return outcome;
    MutexLock lock(mutex_);
    // Woken early only to stop; the odd early try does no harm.
    if (!stop.stop_requested()) lock.wait_until(changed_, system_clock().now() + pause);
    if (stop.stop_requested()) return outcome;
  }
}

}  // namespace detail

std::shared_ptr<TokenProvider> renewing_tokens(RenewalOptions options,
                                               Renewing<Token>::Fetch fetch) {
  return std::make_shared<RenewingProvider<TokenProvider, Token>>(std::move(options),
                                                                  std::move(fetch));
}

}  // namespace headrace::auth
