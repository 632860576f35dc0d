#pragma once
/// \file
/// Versions: which version of an object a store has now, remembered for a moment, and the threads
/// that ask for it. For reads that name none.
///
/// Threads: any.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "base/mutex.h"
#include "base/thread_pool.h"
#include "headrace/clock.h"

namespace headrace::tier {

class Versions {
 public:
  struct Version {
    std::string etag;
    std::uint64_t size_bytes = 0;
  };

  /// What was true less than kMemory ago.
  std::optional<Version> find(std::string_view key, TimePoint now) {
    MutexLock lock(mutex_);
    const auto found = known_.find(std::string(key));
    if (found == known_.end() || now - found->second.second > kMemory) return std::nullopt;
    return found->second.first;
  }
  /// How often something was forgotten.
  std::uint64_t forgotten_count() {
    MutexLock lock(mutex_);
    return forgotten_count_;
  }
  /// What a store has told that was asked when forgotten_count() was `since`. It is not remembered
  /// if something was forgotten meanwhile: it may be what there was before a write.
  void note(std::string_view key, Version version, TimePoint now, std::uint64_t since) {
    MutexLock lock(mutex_);
    if (forgotten_count_ != since) return;
    if (known_.size() >= kMostKnown) known_.clear();
    known_[std::string(key)] = {std::move(version), now};
  }
  /// It is being written, or was not what it was taken for.
  void forget(std::string_view key) {
    MutexLock lock(mutex_);
    ++forgotten_count_;
    known_.erase(std::string(key));
  }

  /// Runs `task`, which may ask the store. A store that is slow to answer has these threads, and
  /// they have no other: whoever needs no answer of it does not wait for them. False: too many
  /// wait, or the system allows no threads.
  bool ask(ThreadPool::Task&& task) {
    ThreadPool* askers = nullptr;
    {
      MutexLock lock(mutex_);
      if (askers_ == nullptr) askers_ = ThreadPool::try_create(kAskers, kQueue);
      askers = askers_.get();
    }
    return askers != nullptr && askers->submit(std::move(task));
  }

 private:
  static constexpr std::chrono::seconds kMemory{1};
  static constexpr std::size_t kMostKnown = 10'000;
  static constexpr std::size_t kAskers = 8, kQueue = 16384;

  Mutex mutex_;
  std::uint64_t forgotten_count_ HEADRACE_GUARDED_BY(mutex_) = 0;
  std::unordered_map<std::string, std::pair<Version, TimePoint>> known_ HEADRACE_GUARDED_BY(mutex_);
  std::unique_ptr<ThreadPool> askers_ HEADRACE_GUARDED_BY(mutex_);  // Last: tasks use the above.
};

}  // namespace headrace::tier
