#pragma once
/// \file
/// Uses the indexes of DALI that lie beside tars, after a look at the tars.
///
/// Threads: the calling one.
#include <optional>
#include <vector>

#include "shard/dataset/build.h"
#include "shard/formats/webdataset/dali_index.h"

namespace headrace::detail {

/// For each object the index `NAME.idx` beside it, when it tells all that a scan would and the
/// headers of the first and the last member, and the block behind that, are what it says; nothing
/// otherwise. Four small reads a tar that has one, many at once. Errors: those of the store.
Result<std::vector<std::optional<DaliIndex>>> find_dali_indexes(
    const BuildContext& context, const std::vector<ObjectInfo>& objects);

}  // namespace headrace::detail
