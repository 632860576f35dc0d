#pragma once
/// \file
/// CompletionQueue: what finished requests of one handle wait in, and the bound on how many
/// requests it has accepted.
///
/// Threads: wait() by one thread at a time; everything else from any thread. Allocates only until
/// it has once held as many completions as it ever holds.
#include <condition_variable>
#include <cstddef>
#include <span>
#include <stop_token>
#include <vector>

#include "base/mutex.h"
#include "headrace/store.h"

namespace headrace {

class CompletionQueue {
 public:
  /// `capacity`: requests between accept() and wait(), > 0.
  explicit CompletionQueue(std::size_t capacity) : capacity_(capacity) {}
  CompletionQueue(const CompletionQueue&) = delete;
  CompletionQueue& operator=(const CompletionQueue&) = delete;

  /// Claims places for up to `wanted` requests and returns how many; 0 when full or closed. Each
  /// claimed place must be paid by one push().
  std::size_t accept(std::size_t wanted) HEADRACE_EXCLUDES(mutex_);
  void push(Completion&& completion) HEADRACE_EXCLUDES(mutex_);

  enum class Outcome { kReady, kTimedOut, kWoken, kStopped };
  /// Store::wait(). `outcome`, when given, says why it returned. A closed queue with nothing left
  /// returns at once (kStopped).
  std::size_t wait(std::span<Completion> out, TimePoint until, std::stop_token stop,
                   Outcome* outcome = nullptr) HEADRACE_EXCLUDES(mutex_);
  /// Store::wake().
  void wake() noexcept HEADRACE_EXCLUDES(mutex_);
  /// accept() returns 0 from now on. Idempotent.
  void close() noexcept HEADRACE_EXCLUDES(mutex_);
  /// Requests accepted whose completion was not taken yet.
  std::size_t outstanding() noexcept HEADRACE_EXCLUDES(mutex_);

 private:
  std::size_t take(std::span<Completion> out);
  Outcome sleep(TimePoint until, const std::stop_token& stop) HEADRACE_EXCLUDES(mutex_);

  const std::size_t capacity_;
  Mutex mutex_;
  std::condition_variable changed_;
  std::vector<Completion> incoming_ HEADRACE_GUARDED_BY(mutex_);
  std::size_t outstanding_ HEADRACE_GUARDED_BY(mutex_) = 0;
  bool is_sleeping_ HEADRACE_GUARDED_BY(mutex_) = false;
  bool is_woken_ HEADRACE_GUARDED_BY(mutex_) = false;
  bool is_closed_ HEADRACE_GUARDED_BY(mutex_) = false;
  // The consumer's alone: swapped with incoming_ when empty, then handed out without the lock.
  std::vector<Completion> ready_;
  std::size_t ready_first_ = 0;
};

}  // namespace headrace
