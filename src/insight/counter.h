#pragma once
/// \file
/// Counters that any thread may bump and any thread may read. No registry: each part owns its
/// counters and appends them to the MetricList that it is asked for.
#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "headrace/metrics.h"

namespace headrace {

/// Monotonic count. Relaxed: readers want a recent value, not an order with other memory.
class Counter {
 public:
  void add(std::uint64_t n = 1) noexcept { value_.fetch_add(n, std::memory_order_relaxed); }
  std::uint64_t value() const noexcept { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<std::uint64_t> value_{0};
};

/// A level that goes up and down.
class Gauge {
 public:
  void add(std::int64_t n) noexcept { value_.fetch_add(n, std::memory_order_relaxed); }
  std::int64_t value() const noexcept { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<std::int64_t> value_{0};
};

inline void append_counter(MetricList& out, std::string name, std::string_view unit,
                           std::uint64_t value) {
  out.push_back({.name = std::move(name), .value = static_cast<double>(value), .unit = unit});
}
inline void append_gauge(MetricList& out, std::string name, std::string_view unit, double value) {
  out.push_back(
      {.name = std::move(name), .value = value, .kind = MetricKind::kGauge, .unit = unit});
}

}  // namespace headrace
