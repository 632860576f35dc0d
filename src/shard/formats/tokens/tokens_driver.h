#pragma once
/// \file
/// Token ids: Megatron `.bin` with `.idx`, or flat integers.
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

extern const FormatDriver kTokensDriver;

/// The `.idx` files are looked up next to `objects`.
Result<std::string> build_tokens_index(const BuildContext& context,
                                       const std::vector<ObjectInfo>& objects);

Result<std::shared_ptr<const Dataset>> make_tokens_dataset(DatasetParts parts);

}  // namespace headrace::detail
