#pragma once
/// \file
/// Whole-buffer decompression into memory that the caller sized.
///
/// Threads: any; a call keeps no state but a decompressor of its thread.
#include <cstddef>
#include <span>

#include "headrace/status.h"
#include "shard/index/hri.h"

namespace headrace::detail {

/// Inflates `stored` into exactly `raw`. gzip, bzip2, zstd, xz: one member (frame, stream) or
/// several; snappy: one raw block; brotli, zlib: one stream. Memory besides `raw`: as
/// StreamInflater. Errors: kCorrupt (damaged, cut off, more or fewer bytes than raw.size(), bytes
/// after the end), kUnsupported (kNone, kOwn, kDecoded; an xz dictionary beyond 128 MiB),
/// kExhausted.
Status inflate(Compression compression, std::span<const std::byte> stored,
               std::span<std::byte> raw);

}  // namespace headrace::detail
