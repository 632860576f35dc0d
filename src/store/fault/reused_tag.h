#pragma once
/// \file
/// For tests of wrappers that give the store below tags of their own: which request does their
/// cancel() reach, where another thread takes a completion and submits at that moment?
///
/// Threads: those of ReusedTag.
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <utility>

#include "base/mutex.h"
#include "headrace/forwarding_store.h"

namespace headrace {

/// Shared with who looks on.
struct ReusedTag {
  /// What another thread does while cancel() is under way, which waits for it for a moment.
  std::function<void()> meanwhile;
  std::thread thread;
  std::atomic<bool> is_done{false};
  std::string cancelled_key;
};

/// Cancels nothing, but notes what it was to cancel. One cancel().
class ReusedTagStore final : public ForwardingStore {
 public:
  ReusedTagStore(std::unique_ptr<Store> inner, std::shared_ptr<ReusedTag> seen)
      : ForwardingStore(std::move(inner)), seen_(std::move(seen)) {}

  std::size_t submit(std::span<Request> requests) override {
    {
      MutexLock lock(mutex_);
      for (const Request& request : requests) keys_[request.tag] = request.key;
    }
    return inner().submit(requests);
  }
  void cancel(std::uint64_t tag) override {
    constexpr int kPatienceMs = 300;  // Where it has to wait for cancel(), that long.
    seen_->thread = std::thread([this] {
      seen_->meanwhile();
      seen_->is_done.store(true);
    });
    for (int i = 0; i < kPatienceMs && !seen_->is_done.load(); ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    MutexLock lock(mutex_);
    seen_->cancelled_key = keys_[tag];
  }

 private:
  Result<std::unique_ptr<Store>> wrap(std::unique_ptr<Store> handle) override {
    return std::unique_ptr<Store>(std::make_unique<ReusedTagStore>(std::move(handle), seen_));
  }

  const std::shared_ptr<ReusedTag> seen_;
  Mutex mutex_;
  std::map<std::uint64_t, std::string> keys_ HEADRACE_GUARDED_BY(mutex_);
};

}  // namespace headrace
