#pragma once
/// \file
/// What the shards of a dataset are called. Pure.
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace headrace::pack_detail {

/// `before`, the number in `digits` digits or more, `after`.
struct ShardNames {
  std::string before;
  std::size_t digits = 0;
  std::string after;

  /// "shard.00042.mds.zstd", "shard-000042.tar", "chunk-0-42.bin" ...
  std::string name_of(std::uint64_t shard) const;
  /// The shard of this name; nullopt: it is no shard's.
  std::optional<std::uint64_t> shard_of(std::string_view name) const;
};

/// \pre `format` is "mds", "webdataset", "tfrecord", "litdata" or "parquet".
ShardNames shard_names(std::string_view format, bool is_compressed);

}  // namespace headrace::pack_detail
