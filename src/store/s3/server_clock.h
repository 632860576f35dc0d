#pragma once
/// \file
/// ServerClock: how far this machine's clock is from the store's, learnt from an answer that says
/// that they differ too much. Private to s3/. Threads: any.
#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>

namespace headrace::s3 {

class ServerClock {
 public:
  /// The store's time when it is `local` here.
  std::chrono::sys_seconds adjusted(std::chrono::sys_seconds local) noexcept {
    // Relaxed: single values that depend on nothing else; a late reader signs once more in vain.
    last_local_s_.store(local.time_since_epoch().count(), std::memory_order_relaxed);
    return local + std::chrono::seconds(offset_s_.load(std::memory_order_relaxed));
  }
  /// The store refused a request as too old or new and said what its clock shows. True when this
  /// is news: signing anew will help.
  bool learn(std::optional<std::chrono::sys_seconds> server) noexcept {
    if (!server) return false;
    const std::int64_t offset =
        server->time_since_epoch().count() - last_local_s_.load(std::memory_order_relaxed);
    const std::int64_t before = offset_s_.exchange(offset, std::memory_order_relaxed);
    // S3 allows 15 minutes; below one minute the difference cannot have been the reason.
    const std::int64_t change = offset > before ? offset - before : before - offset;
    return change >= 60;
  }

 private:
  std::atomic<std::int64_t> offset_s_{0};
  std::atomic<std::int64_t> last_local_s_{0};
};

}  // namespace headrace::s3
