#pragma once
/// \file
/// Blocks of a compressed data file: how many bytes one has there, and what they are.
///
/// A block that zstd makes no shorter is stored as it is. Any other one is u8 planes (1, 2, 4 or
/// 8), u16 (little-endian) bytes of each plane as it is stored, and the planes: plane p has each
/// element's byte p, as a zstd frame, or, where it has as many bytes as elements, as it is.
///
/// Threads: functions; each thread keeps a context of zstd.
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "headrace/checkpoint.h"

namespace headrace::checkpoint {

/// Room that pack_block() needs for what it may find not to be shorter.
inline constexpr std::size_t kPackRoomBytes = kSumBlockBytes + 32;

/// Planes into which the blocks of a piece are taken apart: the bytes of a number, of which some
/// say nearly the same in all elements, and others are noise. \pre bits_of_dtype() knows it.
std::uint32_t plane_count(std::string_view dtype) noexcept;

/// Compresses a block (at most kSumBlockBytes, whole elements) into the front of `out`. \return
/// bytes there; 0: it would be no shorter, and is to be stored as it is.
std::size_t pack_block(std::span<const std::byte> plain, std::uint32_t planes,
                       std::span<std::byte, kPackRoomBytes> out);

/// Undoes it: `plain` has as many bytes as the block had. Writes nowhere else, whatever `stored`
/// says. False: it is no such block.
[[nodiscard]] bool unpack_block(std::span<const std::byte> stored, std::span<std::byte> plain);

}  // namespace headrace::checkpoint
