#pragma once
/// \file
/// MDS: shards that an index.json describes.
///
/// Threads: functions; a build runs in the calling thread.
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "shard/dataset/build.h"
#include "shard/dataset/format_driver.h"
#include "shard/dataset/indexed_dataset.h"
#include "shard/formats/mds/mds_index.h"

namespace headrace::detail {

extern const FormatDriver kMdsDriver;

bool looks_like_mds(std::span<const std::byte> head) noexcept;  ///< A plain shard; not its lines.

/// Reads and parses the index.json `info` range after range: for one that is too large to be read
/// as a whole. Memory: the shards found, and a few ranges. Errors: as parse_mds_index(), kChanged,
/// those of the store.
Result<MdsIndex> read_mds_index(const BuildContext& context, const ObjectInfo& info);

/// `source` is the index.json that `index` was parsed from. Reads the offset table of each plain
/// shard, or 8 bytes of each shard where that tells enough. Errors: kCorrupt (sizes or tables that
/// do not fit), kChanged, those of the store.
Result<std::string> build_mds_index(const BuildContext& context, const MdsIndex& index,
                                    const IndexSource& source);

Result<std::shared_ptr<const Dataset>> make_mds_dataset(DatasetParts parts);

}  // namespace headrace::detail
