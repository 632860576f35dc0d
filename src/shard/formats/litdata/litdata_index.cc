// What cannot be read is refused here, by the name that it has in the index, before any chunk is
// asked for. The index is somebody else's: names must stay inside the dataset, and each count is
// bounded by the bytes of its chunk before anything is allocated by it.
#include "shard/formats/litdata/litdata_index.h"

#include <fmt/format.h>

#include "shard/codec/json_reader.h"
#include "shard/dataset/safe_key.h"
#include "shard/formats/litdata/data_spec.h"
#include "shard/formats/litdata/item.h"
#include "shard/formats/mds/mds_index.h"

namespace headrace::detail {
namespace {

using simdjson::dom::array;
using simdjson::dom::element;

constexpr std::uint64_t kMostChunkBytes = 0xffff'ffffULL;  // Offsets in a chunk are 32 bits wide.

Status corrupt(std::string_view what) {
  return Status(Code::kCorrupt, fmt::format("index.json: {}", what));
}
Status unsupported(std::string_view what) {
  return Status(Code::kUnsupported, fmt::format("index.json: {}", what));
}

// A string field; empty when it is null or absent. Errors: kCorrupt (another type).
Result<std::string_view> text_of(element from, const char* field) {
  element value;
  if (from[field].get(value) || value.is_null()) return std::string_view();
  std::string_view text;
  if (value.get_string().get(text)) return corrupt(fmt::format("{} is no text", field));
  return text;
}

Result<ChunkStorage> storage_of(element config) {
  HEADRACE_TRY_ASSIGN(const auto compression, text_of(config, "compression"));
  if (compression.empty()) return ChunkStorage::kClassic;
  const std::string_view family = compression.substr(0, compression.find(':'));
  if (family != "zstd")
    return unsupported(fmt::format("compression '{}', only zstd is read", compression));
  HEADRACE_TRY_ASSIGN(const auto level, text_of(config, "compression_level"));
  if (level.empty() || level == "chunk") return ChunkStorage::kChunkZstd;
  if (level == "batch") return ChunkStorage::kFramed;
  if (level == "sample") return ChunkStorage::kItemZstd;
  return unsupported(
      fmt::format("compression_level '{}', only chunk, batch and sample are read", level));
}

Result<ChunkEncryption> encryption_of(element config) {
  element encryption;
  if (config["encryption"].get(encryption) || encryption.is_null()) return ChunkEncryption::kNone;
  HEADRACE_TRY_ASSIGN(const auto algorithm, text_of(encryption, "algorithm"));
  if (algorithm != "fernet") {
    return unsupported(
        fmt::format("encrypted with '{}', only fernet is read; write the dataset anew with "
                    "FernetEncryption",
                    algorithm));
  }
  HEADRACE_TRY_ASSIGN(const auto level, text_of(encryption, "level"));
  if (level == "sample") return ChunkEncryption::kItem;
  if (level == "chunk") return ChunkEncryption::kChunk;
  return unsupported(fmt::format("encryption level '{}', only sample and chunk are read", level));
}

Result<LitDataChunk> chunk_of(element entry, bool has_tokens) {
  LitDataChunk chunk;
  std::string_view filename;
  if (entry["filename"].get_string().get(filename)) return corrupt("no filename");
  if (!is_safe_key(filename)) return corrupt("a filename outside the dataset");
  chunk.filename = filename;
  if (entry["chunk_bytes"].get_uint64().get(chunk.chunk_bytes) ||
      chunk.chunk_bytes > kMostChunkBytes) {
    return corrupt("no chunk_bytes below 2^32");
  }
  if (entry["chunk_size"].get_uint64().get(chunk.item_count)) return corrupt("no chunk_size");
  // The table of offsets alone takes 4 bytes an item: bounds everything that is allocated by item
  // count. Whole-chunk compression and encryption keep chunk_bytes above the table, too.
  if (chunk.chunk_bytes < 8 || chunk.item_count > (chunk.chunk_bytes - 8) / 4) {
    return corrupt(
        fmt::format("{} items cannot be in {} bytes", chunk.item_count, chunk.chunk_bytes));
  }
  if (has_tokens &&
      (entry["dim"].get_uint64().get(chunk.token_count) || chunk.token_count > chunk.chunk_bytes)) {
    return corrupt("no dim (number of tokens) that its chunk can hold");
  }
  return chunk;
}

Status read_leaves(element config, LitDataIndex& index) {
  array formats;
  if (config["data_format"].get_array().get(formats) || formats.size() == 0)
    return corrupt("config has no data_format");
  if (formats.size() > kMostColumns)
    return unsupported(fmt::format("more than {} leaves", kMostColumns));
  for (const element format : formats) {
    std::string_view text;
    if (format.get_string().get(text)) return corrupt("bad data_format");
    index.leaf_formats.emplace_back(text);
  }
  HEADRACE_TRY_ASSIGN(const auto spec, text_of(config, "data_spec"));
  if (!spec.empty()) {
    HEADRACE_TRY_ASSIGN(index.leaf_names, parse_data_spec(spec));
  } else {
    for (std::size_t i = 0; i < index.leaf_formats.size(); ++i)
      index.leaf_names.push_back(std::to_string(i));
    if (index.leaf_names.size() == 1) index.leaf_names[0] = "data";
  }
  if (index.leaf_names.size() == index.leaf_formats.size()) return Status();
  return corrupt(fmt::format("{} leaves in data_spec, {} in data_format", index.leaf_names.size(),
                             index.leaf_formats.size()));
}

// Versions before the field existed wrote dims for tokens only.
Result<bool> are_tokens(element config, array chunks) {
  HEADRACE_TRY_ASSIGN(const auto loader, text_of(config, "item_loader"));
  if (loader == "TokensLoader") return true;
  if (loader == "PyTreeLoader") return false;
  if (loader == "ParquetLoader") {
    return unsupported("chunks are Parquet files; open them with format='table'");
  }
  if (!loader.empty())
    return unsupported(
        fmt::format("item_loader '{}', only PyTreeLoader and TokensLoader are read", loader));
  for (const element chunk : chunks) {
    if (!chunk["dim"].is_uint64() && !chunk["dim"].is_int64()) return false;
  }
  return chunks.size() > 0;
}

}  // namespace

bool is_zstd_chunk(std::string_view filename) noexcept {
  const std::size_t name = filename.rfind('/') + 1;  // npos + 1 is 0.
  return filename.find(".zstd", name) != std::string_view::npos;
}

Result<LitDataIndex> parse_litdata_index(std::string_view json) {
  simdjson::dom::parser parser;
  HEADRACE_TRY_ASSIGN(const element root, parse_json(parser, json));
  array chunks;
  element config;
  if (root["chunks"].get_array().get(chunks)) return corrupt("no list of chunks");
  if (root["config"].get(config) || !config.is_object()) return corrupt("no config");
  LitDataIndex index;
  HEADRACE_TRY_ASSIGN(index.has_tokens, are_tokens(config, chunks));
  HEADRACE_TRY_ASSIGN(index.storage, storage_of(config));
  HEADRACE_TRY_ASSIGN(index.encryption, encryption_of(config));
  HEADRACE_TRY(read_leaves(config, index));
  HEADRACE_TRY_ASSIGN(const auto ipc, text_of(config, "ipc_compression"));
  index.has_ipc_compression = !ipc.empty();
  const bool is_inside =
      index.storage == ChunkStorage::kFramed || index.storage == ChunkStorage::kItemZstd;
  if (index.encryption != ChunkEncryption::kNone && (is_inside || index.has_tokens)) {
    return unsupported("encryption of tokens, or together with compression_level batch or sample");
  }
  if (index.has_tokens && (is_inside || index.leaf_formats.size() != 1))
    return unsupported("tokens that are not one array, or compressed otherwise than by chunk");
  for (const element entry : chunks) {
    auto chunk = chunk_of(entry, index.has_tokens);
    if (!chunk)
      return std::move(chunk).error().annotate(fmt::format("chunk {}", index.chunks.size()));
    index.chunks.push_back(*std::move(chunk));
  }
  return index;
}

Result<std::vector<Column>> litdata_columns(const LitDataIndex& index, bool allow_unsafe) {
  std::vector<Column> columns(index.leaf_names.size());
  for (std::size_t i = 0; i < columns.size(); ++i) {
    columns[i].name = index.leaf_names[i];
    HEADRACE_TRY(describe_litdata_leaf(index.leaf_formats[i], allow_unsafe, columns[i]));
  }
  return columns;
}

}  // namespace headrace::detail
