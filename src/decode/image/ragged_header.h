#pragma once
/// \file
/// What stands before the pixels of a value with a shape of its own: MDS's header of an
/// "ndarray:<dtype>", a byte (dimensions << 2 | k), then the dimensions of 2^k bytes each.
///
/// Threads: functions.
#include <cstddef>
#include <span>

#include "headrace/decode.h"

namespace headrace::detail {

/// The axes of a value, in the layout's order.
std::array<std::uint32_t, 3> image_shape(const ImageOptions& options, ImageSize size) noexcept;

std::uint64_t ragged_header_bytes(const ImageOptions& options, ImageSize size) noexcept;

/// Returns where the pixels go. \pre out has room.
std::span<std::byte> write_ragged_header(const ImageOptions& options, ImageSize size,
                                         std::span<std::byte> out) noexcept;

}  // namespace headrace::detail
