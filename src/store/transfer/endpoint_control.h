#pragma once
/// \file
/// EndpointControl: the limit of requests in flight of one engine, for all its reactors: collects
/// what they saw, feeds ConcurrencyControl, and shares with other processes where asked to.
///
/// Threads: share() and append_metrics() from any thread; report() from each reactor with its own
/// index.
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "headrace/metrics.h"
#include "store/transfer/concurrency_control.h"
#include "store/transfer/node_share.h"

namespace headrace::transfer {

/// How often a busy reactor reports. Short beside the shortest measured interval (20 ms), long
/// beside the price of a report (a microsecond).
constexpr std::chrono::milliseconds kReportEvery{5};

class EndpointControl {
 public:
  struct Options {
    ConcurrencyControl::Options law;
    bool is_adaptive = true;  ///< false: always the ceiling.
    std::size_t reactor_count = 1;
    std::string directory;  ///< Of the file shared with other processes; empty: none.
    std::string endpoint;   ///< "host:port", what the processes share by.
    std::uint64_t id = 1;   ///< Unique among the engines of the node; not 0.
  };
  /// A directory that cannot be used is no error: this engine then goes alone, and counts it.
  EndpointControl(const Options& options, TimePoint now);

  bool is_adaptive() const noexcept { return options_.is_adaptive; }
  /// False until the first limit was judged by what it brought.
  bool is_measured() const noexcept {
    return !options_.is_adaptive || goodput_.load(std::memory_order_relaxed) > 0;
  }
  /// Transfers that this reactor may have in flight now; at least 1.
  std::uint32_t share(std::size_t reactor_index) const noexcept {
    const std::uint32_t limit = limit_.load(std::memory_order_relaxed);  // a recent one will do
    const auto count = static_cast<std::uint32_t>(options_.reactor_count);
    return std::max(1U, limit / count + (reactor_index < limit % count ? 1 : 0));
  }

  /// What a reactor did since its last report; `in_flight` now; whether more was waiting.
  void report(std::size_t reactor_index, const ControlSample& sample, std::uint32_t in_flight,
              bool wants_more, TimePoint now);

  /// "store.concurrency_limit", "store.goodput_bytes_per_second", "store.sharing_processes",
  /// "store.sharing_failures".
  void append_metrics(MetricList& out) const;

 private:
  void update(TimePoint now) HEADRACE_REQUIRES(mutex_);

  const Options options_;
  std::atomic<std::uint32_t> limit_;
  std::atomic<double> goodput_{0};
  std::atomic<std::uint32_t> process_count_{1};
  std::atomic<std::uint64_t> sharing_failures_{0};

  Mutex mutex_;
  ConcurrencyControl control_ HEADRACE_GUARDED_BY(mutex_);
  std::unique_ptr<NodeShare> node_ HEADRACE_GUARDED_BY(mutex_);
  bool was_shared_ HEADRACE_GUARDED_BY(mutex_) = true;
  ControlSample sum_ HEADRACE_GUARDED_BY(mutex_);
  std::vector<std::uint32_t> demands_ HEADRACE_GUARDED_BY(mutex_);
  TimePoint updated_at_ HEADRACE_GUARDED_BY(mutex_);
};

}  // namespace headrace::transfer
