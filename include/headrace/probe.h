#pragma once
/// \file
/// Fetch probe: how fast a store gives ranges at one part size and one number of requests in
/// flight. `headrace bench fetch` runs it over a grid and looks for the knee.
///
/// Threads: probe_fetch() blocks its thread; the store's other handles may go on meanwhile.
#include <cstdint>
#include <span>
#include <stop_token>

#include "headrace/memory.h"
#include "headrace/store.h"

namespace headrace {

struct FetchProbeOptions {
  std::uint64_t part_bytes = std::uint64_t{8} << 20;  ///< > 0. Shorter at the ends of objects.
  std::uint32_t in_flight = 16;                       ///< 1 .. 65,536.
  /// Measured time. The probe warms up before (until each request of the first round has ended),
  /// and waits for the last requests after it.
  std::chrono::milliseconds duration{3'000};
  std::uint64_t max_bytes = 0;  ///< Ends earlier after this many measured bytes; 0: no limit.
  std::uint64_t seed = 0;       ///< Of the random choice of ranges.
};

/// What one run saw. Times in microseconds; percentiles are at most 1/16 too large.
struct FetchProbeResult {
  double seconds = 0;
  std::uint64_t bytes = 0;
  std::uint64_t requests = 0;
  std::uint64_t extra_attempts = 0;  ///< Beyond one a request: retries.
  std::uint64_t failures = 0;
  /// From sending a request to the head of its answer.
  std::uint64_t first_byte_p50_us = 0, first_byte_p90_us = 0, first_byte_p99_us = 0,
                first_byte_p999_us = 0;
  /// From submitting a request to its completion.
  std::uint64_t request_p50_us = 0, request_p99_us = 0, request_p999_us = 0;
  Status first_failure;
};

/// Reads random ranges of `objects`, `in_flight` at a time. `store` should be opened for it:
/// max_in_flight of at least in_flight, is_adaptive false, no hedging. Failed requests are counted;
/// when none succeeds the first failure is returned. Errors also: kInvalidArgument (no bytes to
/// read, zero limits), kExhausted (`pool` smaller than one part), kCancelled.
Result<FetchProbeResult> probe_fetch(Store& store, SlabPool& pool,
                                     std::span<const ObjectInfo> objects,
                                     const FetchProbeOptions& options, std::stop_token stop = {});

}  // namespace headrace
