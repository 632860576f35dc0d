#pragma once
/// \file
/// What a builder works with: one a format reads what a dataset is from its store, fills an
/// IndexWriter and returns the bytes of the index (FormatDriver::build).
///
/// Threads: the calling one.
#include <optional>
#include <string>
#include <vector>

#include "headrace/dataset.h"
#include "shard/dataset/broken_shards.h"
#include "shard/index/hri.h"

namespace headrace::detail {

/// Positions of a broken shard, where a manifest tells them.
struct KeptPlaces {
  std::uint64_t first_sample = 0;
  std::uint64_t sample_count = 0;
};

struct BuildContext {
  Store& store;
  SlabPool& pool;
  const DatasetOptions& options;
  const CallOptions& call;
  /// Objects of the listing that are no data (FormatDriver::side_endings); empty when there was
  /// none.
  std::span<const ObjectInfo> side_files = {};
  /// Where builders take down what is broken; nullptr: the first broken object ends the build.
  BrokenShards* broken = nullptr;
  bool is_sure = false;  ///< Bytes are only believed that have come twice the same.

  /// The build goes on without `object`, for which `why` blames its bytes; `kept`: a manifest names
  /// it. Errors: `why`, naming the object, when it does not, or when the first one ends the build.
  Status leave_out(const ObjectInfo& object, Status why,
                   std::optional<KeptPlaces> kept = std::nullopt) const;
  void add_cut(const ObjectInfo& object, std::uint64_t cut_bytes) const {
    if (broken != nullptr && cut_bytes > 0) broken->add_cut({object.key, cut_bytes});
  }
  std::vector<CutEnd> cut_ends() const {
    return broken == nullptr ? std::vector<CutEnd>() : broken->cut_ends();
  }
  /// What leave_out() took down, for IndexWriter::Summary.
  std::vector<BrokenShard> left_out() const;
  void add_whole() const {
    if (broken != nullptr) broken->add_whole();
  }

  /// Largest single read: `aim_bytes`, less when the pool is small. Multiple of 4096.
  std::uint64_t read_bytes(std::uint64_t aim_bytes) const noexcept;
  void report(std::uint64_t done, std::uint64_t all) const {
    if (options.progress) options.progress(done, all);
  }
};

}  // namespace headrace::detail
