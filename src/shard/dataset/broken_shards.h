#pragma once
/// \file
/// BrokenShards: the objects that turned out broken while an index was built. Whether a dataset may
/// do without them is decided when all are known (docs/design/0053).
///
/// Threads: the building one.
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "headrace/dataset.h"

namespace headrace::detail {

/// Whether an error of a parser says that an object's bytes are wrong. What the store did, and
/// what disagrees with other objects or with the options, has other codes.
bool blames_bytes(Code code) noexcept;
/// The same of a shard that a manifest names: it may also be missing.
bool blames_shard(Code code) noexcept;

class BrokenShards {
 public:
  /// More than this are another problem than damage.
  static constexpr std::size_t kMost = 10'000;

  bool empty() const noexcept { return shards_.empty(); }
  std::size_t size() const noexcept { return shards_.size(); }
  std::size_t whole_count() const noexcept { return whole_count_; }
  /// In the order of their keys: builders find them in the order of the network.
  std::vector<BrokenShard> sorted() const;

  /// Of an object that is already there, nothing changes.
  void add(BrokenShard shard);
  void add_whole() noexcept { ++whole_count_; }

  /// What a lenient scan passed over, in the order of the objects.
  const std::vector<CutEnd>& cut_ends() const noexcept { return cut_ends_; }
  void add_cut(CutEnd end) { cut_ends_.push_back(std::move(end)); }

  /// Names every one, and what to do. Has the code of the first. \pre !empty()
  Status error(const Store& store) const;

 private:
  std::vector<BrokenShard> shards_;
  std::vector<CutEnd> cut_ends_;
  std::size_t whole_count_ = 0;
};

}  // namespace headrace::detail
