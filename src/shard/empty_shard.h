#pragma once
/// \file
/// Objects without bytes among shards: what an upload that was cut off leaves.
///
/// Threads: any.
#include "shard/build.h"
#include "shard/detect.h"

namespace headrace::detail {

/// Refuses an object without bytes unless its format says that such a file holds nothing: a raw
/// file is then an empty value, a plain file of lines has none. Errors: kCorrupt (names the
/// object).
Status refuse_empty(const BuildContext& context, const DataObjects& data);

}  // namespace headrace::detail
