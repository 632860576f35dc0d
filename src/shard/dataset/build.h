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
#include "shard/formats/mds/mds_index.h"
#include "shard/index/hri.h"

namespace headrace::detail {

/// What a builder works with.
struct BuildContext {
  Store& store;
  SlabPool& pool;
  const DatasetOptions& options;
  const CallOptions& call;
  /// Objects of the listing that are no data, such as `.idx` files; empty when there was none.
  std::span<const ObjectInfo> side_files = {};

  /// Largest single read: `aim_bytes`, less when the pool is small. Multiple of 4096.
  std::uint64_t read_bytes(std::uint64_t aim_bytes) const noexcept;
  void report(std::uint64_t done, std::uint64_t all) const {
    if (options.progress) options.progress(done, all);
  }
};

/// Reads and parses the index.json `info` range after range: for one that is too large to be read
/// as a whole. Memory: the shards found, and a few ranges. Errors: as parse_mds_index(), kChanged,
/// those of the store.
Result<MdsIndex> read_mds_index(const BuildContext& context, const ObjectInfo& info);

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

/// `objects`: one sample each, in order. Reads nothing, but for options.manifest: then the samples
/// are the files that it names. Errors: kInvalidArgument (no folder to take labels from; a manifest
/// that does not name files), kNotFound (the manifest, a file that it names), kCorrupt (the
/// manifest), those of the store.
Result<std::string> build_raw_index(const BuildContext& context,
                                    const std::vector<ObjectInfo>& objects);

/// `source` is the index.json whose text is `json`. Errors: kCorrupt, kUnsupported (pickles unless
/// allowed, RSA), kDenied (encrypted and no or a wrong password).
Result<std::string> build_litdata_index(const BuildContext& context, std::string_view json,
                                        const IndexSource& source);
/// Of the builders below, `objects` are the data files in order; side files (`.idx`) are looked up
/// next to them.
Result<std::string> build_tfrecord_index(const BuildContext& context,
                                         const std::vector<ObjectInfo>& objects);
Result<std::string> build_text_index(const BuildContext& context,
                                     const std::vector<ObjectInfo>& objects);
Result<std::string> build_csv_index(const BuildContext& context,
                                    const std::vector<ObjectInfo>& objects);
Result<std::string> build_tokens_index(const BuildContext& context,
                                       const std::vector<ObjectInfo>& objects);
Result<std::string> build_numpy_index(const BuildContext& context,
                                      const std::vector<ObjectInfo>& objects);
Result<std::string> build_table_index(const BuildContext& context,
                                      const std::vector<ObjectInfo>& objects);
Result<std::string> build_array_record_index(const BuildContext& context,
                                             const std::vector<ObjectInfo>& objects);

/// Detection from content: whether the first bytes of an object (up to kDetectBytes) look like the
/// format. Pure; false positives only where the format has no mark.
inline constexpr std::size_t kDetectBytes = 1024;
bool looks_like_tar(std::span<const std::byte> head) noexcept;
bool looks_like_tfrecord(std::span<const std::byte> head) noexcept;  ///< Checks the length's CRC.
bool looks_like_json_lines(std::span<const std::byte> head) noexcept;
/// An array whose first element is an object.
bool looks_like_json_array(std::span<const std::byte> head) noexcept;
bool looks_like_numpy(std::span<const std::byte> head) noexcept;  ///< `.npy`, or a zip (`.npz`).
bool looks_like_table(std::span<const std::byte> head) noexcept;  ///< PAR1, ARROW1.
bool looks_like_array_record(std::span<const std::byte> head) noexcept;
bool looks_like_mds(std::span<const std::byte> head) noexcept;  ///< A plain shard; not its lines.
bool looks_like_litdata(std::span<const std::byte> head) noexcept;  ///< Of a few items or more.

}  // namespace headrace::detail
