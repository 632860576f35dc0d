#pragma once
/// \file
/// WebDataset: tar files whose members with one stem are a sample.
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

extern const FormatDriver kWebDatasetDriver;

bool looks_like_tar(std::span<const std::byte> head) noexcept;

/// `objects`: the tar files, in order. Reads each once from end to end, skipping large members.
/// Errors: kCorrupt (names object and offset), kUnsupported (sparse members, too many columns),
/// those of the store.
Result<std::string> build_webdataset_index(const BuildContext& context,
                                           const std::vector<ObjectInfo>& objects);

std::shared_ptr<const Dataset> make_webdataset(DatasetParts parts);

}  // namespace headrace::detail
