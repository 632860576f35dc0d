#pragma once
/// \file
/// The `index.json` of a LitData dataset. Pure.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/dataset.h"
#include "shard/formats/litdata/leaf_format.h"

namespace headrace::detail {

/// How chunks hold their items.
enum class ChunkStorage {
  kClassic,    ///< Table and items, or Arrow rows.
  kFramed,     ///< zstd frames of many items.
  kItemZstd,   ///< Table and items, each a zstd frame.
  kChunkZstd,  ///< A classic chunk, compressed as a whole when its name says so.
};
enum class ChunkEncryption { kNone, kItem, kChunk };

struct LitDataChunk {
  std::string filename;
  std::uint64_t chunk_bytes = 0;  ///< < 2^32. Of the file; inflated when is_zstd_chunk().
  std::uint64_t item_count = 0;
  std::uint64_t token_count = 0;  ///< Of token chunks.
};

struct LitDataIndex {
  std::vector<LitDataChunk> chunks;
  std::vector<std::string> leaf_names, leaf_formats;  ///< Of equal length.
  ChunkStorage storage = ChunkStorage::kClassic;
  ChunkEncryption encryption = ChunkEncryption::kNone;
  bool has_tokens = false;
  bool has_ipc_compression = false;  ///< Of Arrow rows: their buffers are compressed.
};

/// Errors: kCorrupt (not JSON, fields missing or impossible), kUnsupported (item loader,
/// compression, encryption that is not read; two leaves of one name).
Result<LitDataIndex> parse_litdata_index(std::string_view json);

/// Columns of pytree items. Errors: those of describe_litdata_leaf().
Result<std::vector<Column>> litdata_columns(const LitDataIndex& index, bool allow_unsafe);

/// Whether a file name says that the chunk is compressed as a whole ("chunk-0-0.zstd.bin").
bool is_zstd_chunk(std::string_view filename) noexcept;

}  // namespace headrace::detail
