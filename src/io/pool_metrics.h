#pragma once
/// \file
/// What a memory pool says of itself, for whoever reports it beside its own counters.
#include "headrace/memory.h"
#include "insight/counter.h"

namespace headrace::io {

/// Appends pool.limit_bytes and the others of docs/metrics.md. Any thread.
inline void append_pool_metrics(MetricList& out, const SlabPool& pool) {
  const auto append = [&](const char* name, std::uint64_t bytes) {
    append_gauge(out, name, "bytes", static_cast<double>(bytes));
  };
  append("pool.limit_bytes", pool.limit_bytes());
  append("pool.used_bytes", pool.used_bytes());
  append("pool.committed_bytes", pool.committed_bytes());
  append("pool.peak_bytes", pool.peak_bytes());
}

}  // namespace headrace::io
