#pragma once
/// \file
/// Renewing: a secret that expires, kept fresh in the background. Every provider that fetches
/// (AWS: STS, SSO, container, IMDS; Google; Azure) is one of these around a fetch function.
///
/// Threads: current() and invalidate() from any thread, never waiting; the fetch function runs on
/// the object's own thread, one at a time, and must end when its stop token asks.
#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>

#include "base/mutex.h"
#include "headrace/clock.h"
#include "headrace/status.h"

namespace headrace::auth {

using WallTime = std::chrono::sys_seconds;

/// An OAuth bearer token (Google, Azure).
struct Token {
  std::string text;
  std::optional<WallTime> expires;  ///< Unset: does not.

  bool operator==(const Token&) const = default;
};

/// Where the parts of a store get their bearer token.
class TokenProvider {
 public:
  virtual ~TokenProvider() = default;
  /// Never waits. Errors: kUnavailable (being fetched: ask again soon), kDenied (cannot be had; the
  /// message says why and where it was looked for).
  virtual Result<std::shared_ptr<const Token>> current(WallTime now) = 0;
  /// The store has refused `refused` as expired or revoked. True when a new one is under way.
  virtual bool invalidate(const Token& refused) = 0;
};

/// How a secret is renewed. The defaults are right for all vendors; tests set the pauses to 0.
struct RenewalOptions {
  std::string what = "credentials";  ///< Start of messages: "role arn:aws:iam::1:role/x".
  /// Renewal starts at the first use within this time of the end; and not before 3/4 of the
  /// secret's life have passed. 15 and 10 minutes: as the AWS SDKs.
  std::chrono::seconds advisory_margin{900};
  /// Within this time of the end (or 1/6 of the life) failed renewals are repeated more often.
  std::chrono::seconds mandatory_margin{600};
  /// Tries of one round; only after kUnavailable and kThrottled is there another.
  int attempts = 3;
  std::chrono::milliseconds attempt_pause{200};  ///< After the first try; doubles.
  /// After a failed round without a valid secret; doubles up to the last one's limit.
  std::chrono::seconds round_pause{2};
  std::chrono::seconds max_round_pause{60};
};

namespace detail {

/// What Renewing<T> is for every T.
///
/// Time comes in with current(): it settles what the thread has brought since, so that tests drive
/// everything by hand and nothing wakes up while nobody asks.
class RenewalCore {
 public:
  using Value = std::shared_ptr<const void>;
  struct Fetched {
    Value value;
    std::optional<WallTime> expires;
  };
  using Fetch = std::function<Result<Fetched>(std::stop_token)>;
  using Equal = bool (*)(const void*, const void*);

  RenewalCore(RenewalOptions options, Fetch fetch, Equal equal);
  ~RenewalCore();
  RenewalCore(const RenewalCore&) = delete;
  RenewalCore& operator=(const RenewalCore&) = delete;

  Result<Value> current(WallTime now) HEADRACE_EXCLUDES(mutex_);
  bool invalidate(const void* refused) HEADRACE_EXCLUDES(mutex_);

 private:
  // kIdle -> kWanted (current, invalidate) -> kFetching -> kDone (thread) -> kIdle (settled).
  enum class Phase : std::uint8_t { kIdle, kWanted, kFetching, kDone };

  void settle(WallTime now) HEADRACE_REQUIRES(mutex_);
  void log_failure(WallTime now) const HEADRACE_REQUIRES(mutex_);
  void accept(Fetched fetched, WallTime now) HEADRACE_REQUIRES(mutex_);
  void note_failure(Status failure, WallTime now) HEADRACE_REQUIRES(mutex_);
  void want() HEADRACE_REQUIRES(mutex_);
  bool is_usable(WallTime now) const HEADRACE_REQUIRES(mutex_);
  bool is_due(WallTime now) const HEADRACE_REQUIRES(mutex_);
  Status why_not() const HEADRACE_REQUIRES(mutex_);
  void run(std::stop_token stop) HEADRACE_EXCLUDES(mutex_);
  Result<Fetched> fetch_round(const std::stop_token& stop) HEADRACE_EXCLUDES(mutex_);

  const RenewalOptions options_;
  const Fetch fetch_;
  const Equal equal_;

  Mutex mutex_;
  std::condition_variable changed_;
  Phase phase_ HEADRACE_GUARDED_BY(mutex_) = Phase::kIdle;
  std::optional<Result<Fetched>> outcome_ HEADRACE_GUARDED_BY(mutex_);  // in kDone
  Value value_ HEADRACE_GUARDED_BY(mutex_);
  std::optional<WallTime> expires_ HEADRACE_GUARDED_BY(mutex_);
  WallTime renew_at_ HEADRACE_GUARDED_BY(mutex_){};
  WallTime urgent_at_ HEADRACE_GUARDED_BY(mutex_){};
  bool is_refused_ HEADRACE_GUARDED_BY(mutex_) = false;
  Status failure_ HEADRACE_GUARDED_BY(mutex_);  // of the last round
  int failed_rounds_ HEADRACE_GUARDED_BY(mutex_) = 0;
  WallTime failed_at_ HEADRACE_GUARDED_BY(mutex_){};
  std::chrono::seconds pause_ HEADRACE_GUARDED_BY(mutex_){0};
  std::jthread thread_ HEADRACE_GUARDED_BY(mutex_);  // from the first fetch on
};

}  // namespace detail

/// A secret of type T (with a member `std::optional<WallTime> expires` and ==) that is fetched when
/// first asked for and renewed before it ends. The thread starts with the first fetch; the
/// destructor stops it.
///
/// A use in the last quarter of the secret's life (at most 15 minutes) starts the renewal; the old
/// one serves meanwhile, also while renewals fail. A secret that nobody uses is not renewed.
template <class T>
class Renewing {
 public:
  using Fetch = std::function<Result<T>(std::stop_token)>;

  /// `fetch` runs on the own thread. It should return kUnavailable or kThrottled only for what may
  /// pass; other codes end the round at once. Its message should say what to do.
  Renewing(RenewalOptions options, Fetch fetch)
      : core_(
            std::move(options),
            [fetch =
                 std::move(fetch)](std::stop_token stop) -> Result<detail::RenewalCore::Fetched> {
              HEADRACE_TRY_ASSIGN(T value, fetch(std::move(stop)));
              const auto expires = value.expires;
              return detail::RenewalCore::Fetched{std::make_shared<const T>(std::move(value)),
                                                  expires};
            },
            [](const void* a, const void* b) {
              return *static_cast<const T*>(a) == *static_cast<const T*>(b);
            }) {}

  /// Never waits. Errors: kUnavailable while there is none and one is being fetched, or when the
  /// first rounds failed by what may pass; kDenied, with the story, when it cannot be had. After a
  /// pause the next call tries again.
  Result<std::shared_ptr<const T>> current(WallTime now) {
    HEADRACE_TRY_ASSIGN(auto value, core_.current(now));
    return std::static_pointer_cast<const T>(std::move(value));
  }

  /// The store has refused `refused`. Starts at most one renewal per secret. True when another
  /// one than `refused` is there or under way.
  bool invalidate(const T& refused) { return core_.invalidate(&refused); }

 private:
  detail::RenewalCore core_;
};

/// A `Provider` of secrets `T` that are renewed.
template <class Provider, class T>
class RenewingProvider final : public Provider {
 public:
  RenewingProvider(RenewalOptions options, typename Renewing<T>::Fetch fetch)
      : renewing_(std::move(options), std::move(fetch)) {}
  Result<std::shared_ptr<const T>> current(WallTime now) override { return renewing_.current(now); }
  bool invalidate(const T& refused) override { return renewing_.invalidate(refused); }

 private:
  Renewing<T> renewing_;
};

/// A TokenProvider around `fetch`.
std::shared_ptr<TokenProvider> renewing_tokens(RenewalOptions options,
                                               Renewing<Token>::Fetch fetch);

}  // namespace headrace::auth
