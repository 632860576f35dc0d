#include "pack/shard_names.h"

#include "base/strings.h"

namespace headrace::pack_detail {

std::string ShardNames::name_of(std::uint64_t shard) const {
  const std::string number = std::to_string(shard);
  const std::size_t zeros = digits > number.size() ? digits - number.size() : 0;
  return before + std::string(zeros, '0') + number + after;
}

std::optional<std::uint64_t> ShardNames::shard_of(std::string_view name) const {
  if (name.size() <= before.size() + after.size()) return std::nullopt;
  const auto shard = parse_decimal<std::uint64_t>(
      name.substr(before.size(), name.size() - before.size() - after.size()));
  return shard && name_of(*shard) == name ? shard : std::nullopt;
}

ShardNames shard_names(std::string_view format, bool is_compressed) {
  if (format == "mds") return {"shard.", 5, is_compressed ? ".mds.zstd" : ".mds"};
  if (format == "litdata") return {"chunk-0-", 0, is_compressed ? ".zstd.bin" : ".bin"};
  if (format == "parquet") return {"part-", 5, ".parquet"};
  const std::string suffix = format == "tfrecord" ? ".tfrecord" : ".tar";
  return {"shard-", 6, suffix + (is_compressed ? ".gz" : "")};
}

}  // namespace headrace::pack_detail
