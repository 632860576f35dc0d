#pragma once
/// \file
/// Tables: Parquet, Lance, Arrow files.
///
/// Threads: functions; a build runs in the calling thread.
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "shard/dataset/build.h"
#include "shard/dataset/format_driver.h"
#include "shard/dataset/indexed_dataset.h"

namespace headrace::detail {

extern const FormatDriver kTableDriver;

bool looks_like_table(std::span<const std::byte> head) noexcept;  ///< PAR1, ARROW1.

/// Schema and key-value metadata of a table of Parquet files, as Petastorm writes it.
inline constexpr std::string_view kCommonMetadataKey = "_common_metadata";
/// One of the files that make a folder a Lance dataset.
bool is_lance_manifest(const ObjectInfo& object) noexcept;

Result<std::string> build_table_index(const BuildContext& context,
                                      const std::vector<ObjectInfo>& objects);

Result<std::shared_ptr<const Dataset>> make_table_dataset(DatasetParts parts,
                                                          const DatasetOptions& options);

}  // namespace headrace::detail
