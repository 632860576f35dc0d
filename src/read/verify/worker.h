#pragma once
/// \file
/// One worker of `verify`: takes jobs until there are none, and hands in what it found.
///
/// Place: verify.cc starts some.
///
/// Threads: work_on() on a thread of its own; VerifyRun is what they share.
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <vector>

#include "base/mutex.h"
#include "headrace/verify.h"
#include "io/read_budget.h"
#include "read/verify/jobs.h"

namespace headrace::detail {

/// Pieces of what is only hashed: small enough to be hashed out of the cache that the read filled,
/// large enough that requests cost little. A small pool makes them smaller.
inline constexpr std::uint64_t kVerifyPieceBytes = std::uint64_t{2} << 20;

/// What the workers share.
struct VerifyRun {
  VerifyRun(const Dataset* d, Store& s, SlabPool& p, const VerifyOptions& o, const CallOptions& c)
      : dataset(d), store(s), pool(p), options(o), call(c) {}
  const Dataset* const dataset;  ///< nullptr: objects only.
  Store& store;
  SlabPool& pool;
  const VerifyOptions& options;
  const CallOptions& call;
  // Slabs are charged up to 5/4 of what is asked for.
  const std::uint64_t usable_bytes = pool.limit_bytes() / 5 * 4;
  const std::uint64_t piece_bytes = std::min(kVerifyPieceBytes, usable_bytes);
  /// Of all workers.
  io::ReadBudget budget{usable_bytes, {.subject = store.url(), .memory_bytes = pool.limit_bytes()}};
  std::vector<VerifyJob> jobs;
  std::atomic<std::size_t> next_job{0};
  std::atomic<std::uint64_t> read_bytes{0};
  std::atomic<bool> is_over{false};  // Set once, by the first worker that has to end everything.
  Mutex mutex;
  Status fatal HEADRACE_GUARDED_BY(mutex);
  VerifyReport report HEADRACE_GUARDED_BY(mutex);
};

/// Carries out jobs of `run`, at most `depth` pieces in memory at once.
void work_on(VerifyRun& run, std::size_t depth);

}  // namespace headrace::detail
