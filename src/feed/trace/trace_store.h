#pragma once
/// \file
/// TraceStore: a store that writes down what it is asked for, and gives every read at once and
/// without bytes.
///
/// Threads: as class Store says.
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "headrace/forwarding_store.h"
#include "headrace/simulate_cache.h"

namespace headrace::feed {

/// Versions of objects by number, for all ranks of a trace. One thread at a time.
class ObjectNumbers {
 public:
  std::uint32_t number(std::string_view key, std::string_view etag) {
    std::string name(key);
    name += '\0';
    name += etag;
    return numbers_.try_emplace(std::move(name), static_cast<std::uint32_t>(numbers_.size()))
        .first->second;
  }

 private:
  std::map<std::string, std::uint32_t, std::less<>> numbers_;
};

/// Where one rank's reads are written down.
struct TraceLog {
  explicit TraceLog(ObjectNumbers& objects) : numbers(objects) {}

  Mutex mutex;
  std::condition_variable told;
  ObjectNumbers& numbers HEADRACE_GUARDED_BY(mutex);
  ReadTrace::Rank rank HEADRACE_GUARDED_BY(mutex);
};

class TraceStore final : public ForwardingStore {
 public:
  /// `inner`: for what the store is; asked for no data.
  TraceStore(std::unique_ptr<Store> inner, std::shared_ptr<TraceLog> log)
      : ForwardingStore(std::move(inner)), log_(std::move(log)) {}

  std::size_t submit(std::span<Request> requests) override;
  std::size_t wait(std::span<Completion> out, TimePoint until, std::stop_token stop) override;
  void wake() noexcept override;
  void cancel(std::uint64_t) override {}  // It is over already.
  void stop() noexcept override;

  bool wants_foresight() const noexcept override { return true; }
  std::uint64_t read_count() const noexcept override;
  void foresee(std::span<const ForeseenRead> reads, std::uint64_t since) override;

 private:
  Result<std::unique_ptr<Store>> wrap(std::unique_ptr<Store> handle) override {
    return std::unique_ptr<Store>(std::make_unique<TraceStore>(std::move(handle), log_));
  }

  const std::shared_ptr<TraceLog> log_;
  Mutex mutex_;
  std::condition_variable changed_;
  std::deque<Completion> ready_ HEADRACE_GUARDED_BY(mutex_);
  bool is_woken_ HEADRACE_GUARDED_BY(mutex_) = false;
  bool is_stopped_ HEADRACE_GUARDED_BY(mutex_) = false;
};

}  // namespace headrace::feed
