#pragma once
/// \file
/// What a builder works with: one a format reads what a dataset is from its store, fills an
/// IndexWriter and returns the bytes of the index (FormatDriver::build).
///
/// Threads: the calling one.
#include <string>
#include <vector>

#include "headrace/dataset.h"
#include "shard/index/hri.h"

namespace headrace::detail {

struct BuildContext {
  Store& store;
  SlabPool& pool;
  const DatasetOptions& options;
  const CallOptions& call;
  /// Objects of the listing that are no data (FormatDriver::side_endings); empty when there was
  /// none.
  std::span<const ObjectInfo> side_files = {};

  /// Largest single read: `aim_bytes`, less when the pool is small. Multiple of 4096.
  std::uint64_t read_bytes(std::uint64_t aim_bytes) const noexcept;
  void report(std::uint64_t done, std::uint64_t all) const {
    if (options.progress) options.progress(done, all);
  }
};

}  // namespace headrace::detail
