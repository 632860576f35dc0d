#pragma once
/// \file
/// Separated values with a header (RFC 4180). Their dataset is that of lines.
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

extern const FormatDriver kCsvDriver;

Result<std::string> build_csv_index(const BuildContext& context,
                                    const std::vector<ObjectInfo>& objects);

}  // namespace headrace::detail
