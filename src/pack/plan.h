#pragma once
/// \file
/// The plan of a pack: which files go into which shard, and how large each shard will be, known
/// from the listing alone. Hence shards can be made in any order, by any number of workers, and a
/// later run recognises them. Pure.
///
/// Threads: immutable once made.
#include <cstdint>
#include <string>
#include <vector>

#include "headrace/pack.h"
#include "headrace/store.h"
#include "headrace/target_record.h"

namespace headrace::pack_detail {

enum class Layout : std::uint8_t { kMdsFiles, kMdsTokens, kTarFiles };

/// One shard: a run of files, or of samples of the token stream.
struct ShardPlan {
  std::uint64_t first_file = 0;  ///< kMdsTokens: the file that holds the first token.
  std::uint64_t file_count = 0;  ///< kMdsTokens: files that end in this shard.
  std::uint64_t first_sample = 0;
  std::uint64_t sample_count = 0;
  std::uint64_t image_bytes = 0;  ///< Size before compression.
};

struct PackPlan {
  Layout layout = Layout::kMdsFiles;
  std::vector<ObjectInfo> files;  ///< Sorted by key.
  std::vector<ShardPlan> shards;
  std::uint64_t sample_count = 0;
  std::uint64_t source_bytes = 0;

  std::uint64_t shard_bytes = 0;
  std::uint32_t tokens_per_sample = 0;
  /// kMdsTokens: place of each file's first token in the stream; one more entry for its end.
  std::vector<std::uint64_t> first_token;
  std::string mds_config;   ///< The JSON that every MDS shard carries.
  std::string compression;  ///< "" or "zstd" or "zstd:LEVEL".
  int zstd_level = 0;
  std::string hash;
  /// kTarFiles: members are "000000042.data" and "000000042.key.txt", a file is a sample; else they
  /// have their own names, and those of one webdataset_group() are one sample.
  bool is_numbered = false;
  std::string digest;  ///< 32 hex digits over options and files (key, size, version).

  bool is_compressed() const noexcept { return !compression.empty(); }
  const char* format() const noexcept { return layout == Layout::kTarFiles ? "webdataset" : "mds"; }
  /// What is known of a shard before it is made: all there is to know of a plain one.
  ShardFacts facts_of(std::uint64_t shard) const;
  /// False: a shard of the planned size is finished. True: only its record has what the index says
  /// of it.
  bool needs_records() const noexcept { return is_compressed() || !hash.empty(); }
};

/// Errors: kInvalidArgument (options; a file too large for a shard of MDS, or with a name that is
/// not UTF-8), kUnsupported (format, compression, hash), kNotFound (no files, or too few bytes for
/// one sample of tokens).
Result<PackPlan> make_plan(std::vector<ObjectInfo> files, const PackOptions& options);

}  // namespace headrace::pack_detail
