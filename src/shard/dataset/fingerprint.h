#pragma once
/// \file
/// What names the content of a dataset. Format: docs/formats.md, "Fingerprint".
///
/// Threads: functions.
#include <string>

#include "shard/index/hri.h"

namespace headrace::detail {

/// 32 hex digits over what an index says of the content, without versions of objects. O(objects).
std::string content_fingerprint(const IndexView& view);

}  // namespace headrace::detail
