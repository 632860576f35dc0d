#pragma once
/// \file
/// Shards that only their index.json can read (MDS, LitData), where there is none or none that is
/// sound: how they are told, and what is said. They are never taken for files of their own.
///
/// Threads: the calling one.
#include <span>
#include <string_view>
#include <vector>

#include "shard/dataset/build.h"
#include "shard/dataset/detect.h"

namespace headrace::detail {

/// kMds or kLitData when a shard of them has such a name ("shard.00000.mds.zstd",
/// "chunk-0-0.zstd.bin"); else kAuto.
Format format_of_indexed_name(std::string_view key) noexcept;

/// True for a file that says where the lines of a json, csv, tsv or xsv shard of MDS are
/// ("shard.00000.json.meta"). The lines themselves look like those of any file.
bool is_meta_of_lines(std::string_view key) noexcept;

/// kCorrupt when `json`, the index.json of a dataset, is no JSON: the message says what it is
/// instead and what to do. ok for any JSON.
Status check_index_json(const Store& store, std::string_view json);

/// What is said of shards whose index.json is not there, or is not theirs. `all`: the objects below
/// the root. Errors: kNotFound, kCorrupt, kInvalidArgument (they are read by another URL).
Status lost_index(const BuildContext& context, const DataObjects& shards,
                  std::span<const ObjectInfo> all);

}  // namespace headrace::detail
