#pragma once
/// \file
/// Objects without bytes among shards: what an upload that was cut off leaves.
///
/// Threads: any.
#include <string_view>

#include "shard/dataset/build.h"
#include "shard/dataset/detect.h"

namespace headrace::detail {

/// True when a name says that its file is compressed (".gz", ".zst", ...).
bool is_compressed_name(std::string_view key) noexcept;

/// Leaves out objects without bytes, as broken, unless their format says that such a file holds
/// nothing: a raw file is then an empty value, a plain file of lines has none. Errors: kCorrupt
/// (names the object).
Status leave_out_empty(const BuildContext& context, DataObjects& data);

}  // namespace headrace::detail
