#pragma once
/// \file
/// What the threads of one server share. Threads: any, as each member says.
#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "auth/sigv4.h"
#include "base/mutex.h"
#include "headrace/sim.h"
#include "sim/behaviour.h"
#include "sim/listing.h"
#include "sim/stats.h"
#include "sim/storage.h"

namespace headrace::sim {

/// How often each thing was asked for. Bounded: a full part starts anew, and what it counted draws
/// its first fates again.
class OrdinalTable {
 public:
  /// The number of calls before with this identity.
  std::uint64_t next(std::uint64_t identity);
  void reset();

 private:
  struct Part {
    Mutex mutex;
    std::unordered_map<std::uint64_t, std::uint32_t> counts HEADRACE_GUARDED_BY(mutex);
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
    bool is_perfect = true;
  };
  void set(const SimBehaviour& behaviour, std::uint64_t seed) HEADRACE_EXCLUDES(mutex_);
  Value get() const HEADRACE_EXCLUDES(mutex_);
  std::uint32_t version() const noexcept { return version_.load(std::memory_order_acquire); }

 private:
  mutable Mutex mutex_;
  Value value_ HEADRACE_GUARDED_BY(mutex_);
  std::atomic<std::uint32_t> version_{1};  // released by set(), acquired by version()
};

struct SharedState {
  explicit SharedState(const SimOptions& options_in)
      : options(options_in), storage(options_in.directory) {}
  /// Errors: kInternal.
  Status open();
  const SimOptions options;
  std::unique_ptr<auth::SigV4Verifier> verifier;  ///< Set by open().
  Storage storage;
  FolderCache folders;
  BehaviourCell behaviour;
  OrdinalTable ordinals;
  std::vector<std::unique_ptr<ThreadStats>> stats;  ///< One a thread; fixed after start.
  std::atomic<bool> is_token_expired{false};        ///< Relaxed: only itself matters.
  std::atomic<std::uint64_t> next_id{0};  ///< Of uploads. Relaxed: only uniqueness matters.

  std::string stats_json() const;
  void reset();
};

}  // namespace headrace::sim
