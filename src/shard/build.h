#pragma once
/// \file
/// Builders: read what a dataset is from its store and return the bytes of its index. One a format.
///
/// Place: called by Dataset::open and build_index; each fills an IndexWriter.
///
/// Threads: the calling one.
#include <string>
#include <vector>

#include "headrace/dataset.h"
#include "shard/index/hri.h"
#include "shard/mds/mds_index.h"

namespace headrace::detail {

/// What a builder works with.
struct BuildContext {
  Store& store;
  SlabPool& pool;
  const DatasetOptions& options;
  const CallOptions& call;

  /// Largest single read: `aim_bytes`, less when the pool is small. Multiple of 4096.
  std::uint64_t read_bytes(std::uint64_t aim_bytes) const noexcept;
  void report(std::uint64_t done, std::uint64_t all) const {
    if (options.progress) options.progress(done, all);
  }
};

/// `source` is the index.json that `index` was parsed from. Reads the offset table of each plain
/// shard, or 8 bytes of each shard where that tells enough. Errors: kCorrupt (sizes or tables that
/// do not fit), kChanged, those of the store.
Result<std::string> build_mds_index(const BuildContext& context, const MdsIndex& index,
                                    const IndexSource& source);

/// `objects`: the tar files, in order. Reads each once from end to end, skipping large members.
/// Errors: kCorrupt (names object and offset), kUnsupported (sparse members, too many columns),
/// those of the store.
Result<std::string> build_webdataset_index(const BuildContext& context,
                                           const std::vector<ObjectInfo>& objects);

/// `objects`: one sample each, in order. Reads nothing.
std::string build_raw_index(const BuildContext& context, const std::vector<ObjectInfo>& objects);

}  // namespace headrace::detail
