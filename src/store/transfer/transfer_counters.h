#pragma once
/// \file
/// Counters of one reactor. Written by its thread alone, read by anyone; docs/metrics.md says what
/// they mean.
#include <atomic>
#include <cstdint>

#include "insight/histogram.h"

namespace headrace::transfer {

/// Plain add without a locked instruction: there is one writer.
class Counter {
 public:
  void add(std::uint64_t n) noexcept {
    value_.store(value_.load(std::memory_order_relaxed) + n, std::memory_order_relaxed);
  }
  std::uint64_t get() const noexcept { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<std::uint64_t> value_{0};
};

struct TransferCounters {
  Counter requests, attempts, received_bytes, sent_bytes, retries, throttles, timeouts,
      stale_connections, fresh_requests;
  Counter tls_handshakes, tls_resumptions, redirects, checksum_failures;
  Counter connections_opened, connect_failures, failures, cancellations, waits;
  Counter hedges, hedges_won;
  Counter answered_gets, answer_wait_us;
  Histogram first_byte_us;  ///< Of the answered gets.
};

}  // namespace headrace::transfer
