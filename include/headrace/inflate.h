#pragma once
/// \file
/// Whole-buffer decompression by name, for code that holds a compressed file of a dataset itself.
#include <cstddef>
#include <span>
#include <string_view>

#include "headrace/status.h"

namespace headrace {

/// Inflates `stored` into exactly `raw`. `compression`: as `Shard::compression` of a dataset has
/// it: "zstd", "gz", "zlib", "bz2", "br", "snappy" or "xz". Threads: any. Errors: kInvalidArgument
/// (another name), kCorrupt (damaged, cut off, more or fewer bytes than raw.size()), kUnsupported
/// (an xz dictionary beyond 128 MiB), kExhausted.
Status inflate(std::string_view compression, std::span<const std::byte> stored,
               std::span<std::byte> raw);

}  // namespace headrace
