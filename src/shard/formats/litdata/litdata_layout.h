#pragma once
/// \file
/// What a LitData index tells its Dataset besides shards and columns: text in the index. Pure.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "shard/formats/litdata/litdata_index.h"

namespace headrace::detail {

/// The Arrow schema of the rows of some chunks.
struct RowSchema {
  std::string message;  ///< The schema message of the Arrow file.
  std::string spec;     ///< What TableUnpacker::describe() made of it.
};

struct LitDataLayout {
  enum class Kind { kItems, kTokens, kRows };
  Kind kind = Kind::kItems;
  ChunkEncryption encryption = ChunkEncryption::kNone;
  std::vector<RowSchema> schemas;
  std::vector<std::uint32_t> schema_of_shard;  ///< Of kRows: one a shard, below schemas.size().
  std::uint64_t tokens_per_sample = 0;         ///< Of kTokens.
};

std::string format_litdata_layout(const LitDataLayout& layout);
/// Errors: kCorrupt.
Result<LitDataLayout> parse_litdata_layout(std::string_view text, std::size_t shard_count);

}  // namespace headrace::detail
