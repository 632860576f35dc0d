#pragma once
/// \file
/// Raw files: every object is a sample.
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

extern const FormatDriver kRawDriver;

/// `objects`: one sample each, in order. Reads nothing, but for options.manifest: then the samples
/// are the files that it names. Errors: kInvalidArgument (no folder to take labels from; a manifest
/// that does not name files), kNotFound (the manifest, a file that it names), kCorrupt (the
/// manifest), those of the store.
Result<std::string> build_raw_index(const BuildContext& context,
                                    const std::vector<ObjectInfo>& objects);

Result<std::shared_ptr<const Dataset>> make_raw_dataset(DatasetParts parts);

}  // namespace headrace::detail
