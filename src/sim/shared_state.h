#pragma once
/// \file
/// What the threads of one server share. Threads: any, as each member says.
#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "auth/sigv4.h"
#include "base/mutex.h"
#include "headrace/sim.h"
#include "sim/behaviour.h"
#include "sim/listing.h"
#include "sim/request_limits.h"
#include "sim/shared_pacer.h"
#include "sim/sim_clock.h"
#include "sim/stats.h"
#include "sim/storage.h"
#include "sim/tls_context.h"

namespace headrace::sim {

/// How often each thing was asked for. Bounded: a full part starts anew, and what it counted draws
/// its first fates again.
class OrdinalTable {
 public:
  struct Before {
    std::uint64_t count = 0;    ///< Calls of begin() before with this identity ...
    bool is_in_flight = false;  ///< ... of which one has not come to its end().
  };
  Before begin(std::uint64_t identity);
  void end(std::uint64_t identity);
  void reset();

 private:
  struct Count {
    std::uint32_t begun = 0;
    std::uint32_t in_flight = 0;
  };
  struct Part {
    Mutex mutex;
    std::unordered_map<std::uint64_t, Count> counts HEADRACE_GUARDED_BY(mutex);
  };
  std::array<Part, 16> parts_;
};

/// Behaviour and seed in force; read through a copy per thread that is refreshed when the version
/// moved.
class BehaviourCell {
 public:
  struct Value {
    SimBehaviour behaviour;
    std::uint64_t seed = 0;
    std::vector<SimAddress> addresses;
    bool is_perfect = true;
    bool shares_bandwidth = false;  ///< total_bytes_per_s or part_bytes_per_s.
    bool limits_requests = false;
    double transfer_bytes_per_s = 0;  ///< Of one transfer; 0: no limit.
  };
  void set(const SimBehaviour& behaviour, std::uint64_t seed) HEADRACE_EXCLUDES(mutex_);
  void set_address(std::size_t index, const SimAddress& address) HEADRACE_EXCLUDES(mutex_);
  /// \pre before the threads start
  void set_address_count(std::size_t count) HEADRACE_EXCLUDES(mutex_);
  Value get() const HEADRACE_EXCLUDES(mutex_);
  std::uint32_t version() const noexcept { return version_.load(std::memory_order_acquire); }

 private:
  mutable Mutex mutex_;
  Value value_ HEADRACE_GUARDED_BY(mutex_);
  std::atomic<std::uint32_t> version_{1};  // released by set(), acquired by version()
};

/// Sessions of S3 Express. Bounded: the oldest go first.
class SessionTable {
 public:
  struct Session {
    std::string bucket;
    TimePoint ends_at{};
    auth::Credentials credentials;
    std::shared_ptr<auth::SigV4Verifier> verifier;
  };
  /// New credentials. Errors: kInternal.
  Result<auth::Credentials> create(std::string_view bucket, std::string_view region,
                                   TimePoint ends_at) HEADRACE_EXCLUDES(mutex_);
  std::optional<Session> find(std::string_view token, std::string_view bucket) const
      HEADRACE_EXCLUDES(mutex_);
  void expire_all() HEADRACE_EXCLUDES(mutex_);

 private:
  mutable Mutex mutex_;
  std::map<std::string, Session, std::less<>> sessions_ HEADRACE_GUARDED_BY(mutex_);
  std::uint64_t count_ HEADRACE_GUARDED_BY(mutex_) = 0;
};

/// The last uploads that were completed: asking again, since the answer was lost, is no error.
/// Bounded: the oldest go first.
class CompletedUploads {
 public:
  struct Upload {
    std::string bucket;
    std::string key;
    std::string etag;
    std::uint64_t parts_hash = 0;  ///< Of the list of parts.
  };
  void add(const std::string& id, Upload upload) HEADRACE_EXCLUDES(mutex_);
  std::optional<Upload> find(std::string_view id) const HEADRACE_EXCLUDES(mutex_);

 private:
  mutable Mutex mutex_;
  std::map<std::string, Upload, std::less<>> uploads_ HEADRACE_GUARDED_BY(mutex_);
  std::deque<std::string> order_ HEADRACE_GUARDED_BY(mutex_);
};

/// What the admin endpoints can do besides: the server's part.
class Control {
 public:
  virtual ~Control() = default;
  virtual Status set_address(std::size_t index, const SimAddress& address) = 0;
  virtual void advance(std::chrono::milliseconds by) = 0;
};

struct SharedState {
  explicit SharedState(const SimOptions& options_in)
      : options(options_in), storage(options_in.directory) {}
  /// Errors: kInternal.
  Status open();
  const SimOptions options;
  std::unique_ptr<auth::SigV4Verifier> verifier;          ///< Set by open().
  std::unique_ptr<TlsContext> tls;                        ///< Empty: plain.
  std::unique_ptr<auth::SigV4Verifier> express_verifier;  ///< The account's keys; set by open().
  SessionTable sessions;
  CompletedUploads completed_uploads;
  Storage storage;
  FolderCache folders;
  BehaviourCell behaviour;
  OrdinalTable ordinals;
  std::vector<std::unique_ptr<ThreadStats>> stats;  ///< One a thread; fixed after start.
  SimClock clock;
  RequestLimits limits;
  SharedPacer total_pacer;
  PartPacers part_pacers;
  std::atomic<std::uint64_t> transfer_count{0};  ///< In progress. Relaxed: an estimate will do.
  std::atomic<bool> is_token_expired{false};     ///< Relaxed: only itself matters.
  std::atomic<std::uint64_t> next_id{0};         ///< Of uploads. Relaxed: only uniqueness matters.

  std::vector<std::string> address_names;  ///< "host:port"; fixed after start.
  Control* control = nullptr;              ///< Set before the threads start; outlives them.

  void expire_credentials() {
    is_token_expired.store(true, std::memory_order_relaxed);
    sessions.expire_all();
  }
  std::string stats_json() const;
  void reset();
};

}  // namespace headrace::sim
