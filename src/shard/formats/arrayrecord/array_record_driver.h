#pragma once
/// \file
/// ArrayRecord: records in compressed chunks, with a footer.
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

extern const FormatDriver kArrayRecordDriver;

bool looks_like_array_record(std::span<const std::byte> head) noexcept;

Result<std::string> build_array_record_index(const BuildContext& context,
                                             const std::vector<ObjectInfo>& objects);

Result<std::shared_ptr<const Dataset>> make_array_record_dataset(DatasetParts parts);

}  // namespace headrace::detail
