#pragma once
/// \file
/// The first bytes of an object, inflated if it is compressed: what detection looks at.
///
/// Threads: the calling one.
#include <cstddef>
#include <vector>

#include "headrace/store.h"
#include "shard/dataset/build.h"

namespace headrace::detail {

/// Up to `most_bytes` from the start of `object`, inflated when it begins as gzip, zstd, bzip2 or
/// xz, or is a TFRecord file in zlib; fewer when the file holds fewer, or the first MiB of a
/// compressed one. One read of 64 KiB, more where compressed data begins with a large block.
/// Errors: those of the store; kCorrupt, kUnsupported (compressed data, also when nothing comes out
/// of it).
Result<std::vector<std::byte>> read_head(const BuildContext& context, const ObjectInfo& object,
                                         std::size_t most_bytes = 4096);

}  // namespace headrace::detail
