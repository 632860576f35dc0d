#pragma once
/// \file
/// Shards that only their index.json can read (MDS, LitData), where there is none or none that is
/// sound. They are never taken for files of their own.
///
/// Threads: the calling one.
#include <span>
#include <string_view>
#include <vector>

#include "shard/dataset/build.h"
#include "shard/dataset/detect.h"

namespace headrace::detail {

/// What is said of `shards`, of a format with an index.json, where that is not there or not theirs.
/// `all`: the objects below the root. Errors: kNotFound, kCorrupt, kInvalidArgument (they are read
/// by another URL).
Status lost_index(const BuildContext& context, const DataObjects& shards,
                  std::span<const ObjectInfo> all);

}  // namespace headrace::detail
