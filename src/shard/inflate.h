#pragma once
/// \file
/// Whole-buffer zstd decompression into memory that the caller sized.
///
/// Threads: any; a call keeps no state.
#include <cstddef>
#include <span>

#include "headrace/status.h"

namespace headrace::detail {

/// Inflates all frames of `stored` into exactly `raw`. Frames may lack their content size;
/// skippable frames are skipped. Errors: kCorrupt (damaged, cut off, more or fewer bytes than
/// raw.size()).
Status inflate_zstd(std::span<const std::byte> stored, std::span<std::byte> raw);

}  // namespace headrace::detail
