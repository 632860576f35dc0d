#pragma once
/// \file
/// trace_reads(): the reads of a run, found by running it without moving data.
///
/// The real loader runs, with its order, read-ahead and memory, over a store that gives every read
/// at once and a dataset whose values are all zero or empty. So what it asks for is what a run
/// would ask for whose store keeps up. docs/design/0048.
///
/// Place: src/feed/.
///
/// Threads: a call.
#include <cstdint>
#include <functional>
#include <memory>
#include <stop_token>

#include "headrace/loader.h"
#include "headrace/simulate_cache.h"
#include "headrace/store.h"

namespace headrace {

struct TraceOptions {
  LoaderOptions loader;  ///< Its rank is the first of those that share the cache.
  std::uint32_t ranks = 1;
  std::uint64_t epochs = 1;
  std::uint64_t memory_bytes = std::uint64_t{4} << 30;  ///< Of each rank, cache buffers left out.
  /// (batches so far, batches in all), now and then.
  std::function<void(std::uint64_t, std::uint64_t)> progress = {};
};

/// `store` is asked for nothing but what it is. Errors: those of Loader::create() and of its
/// orders, kInvalidArgument (no such ranks), kCancelled.
Result<ReadTrace> trace_reads(std::shared_ptr<const Dataset> dataset, Store& store,
                              const TraceOptions& options, const std::stop_token& stop = {});

}  // namespace headrace
