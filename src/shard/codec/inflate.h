#pragma once
/// \file
/// Whole-buffer decompression into memory that the caller sized.
///
/// Threads: any; a call keeps no state but a decompressor of its thread.
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "headrace/status.h"
#include "shard/index/hri.h"

namespace headrace::detail {

/// Inflates `stored` into exactly `raw`. gzip, bzip2, zstd, xz: one member (frame, stream) or
/// several; snappy: one raw block; brotli, zlib: one stream. Memory besides `raw`: as
/// StreamInflater. Errors: kCorrupt (damaged, cut off, more or fewer bytes than raw.size(), bytes
/// after the end), kUnsupported (kNone, kOwn, kUnpacked; an xz dictionary beyond 128 MiB),
/// kExhausted.
Status inflate(Compression compression, std::span<const std::byte> stored,
               std::span<std::byte> raw);

/// Inflates deflate without any frame (members of zip files) into exactly `raw`, whose CRC-32 is
/// `crc32`. Errors: kCorrupt, kExhausted.
Status inflate_bare(std::span<const std::byte> stored, std::span<std::byte> raw,
                    std::uint32_t crc32);
/// Errors: kCorrupt.
Status check_crc32(std::span<const std::byte> raw, std::uint32_t crc32);
/// The first bytes (at most `most_bytes`) of what such deflate inflates to, as far as `stored` (its
/// begin) goes.
std::string inflate_begin(std::span<const std::byte> stored, std::size_t most_bytes);

}  // namespace headrace::detail
