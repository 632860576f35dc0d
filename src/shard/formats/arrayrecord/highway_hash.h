#pragma once
/// \file
/// HighwayHash, 64 bits: the checksum of Riegeli files. Pure; any thread.
///
/// Source: github.com/google/highwayhash, the portable algorithm of the README's paper; checked
/// against files that array_record wrote.
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace headrace::detail {

std::uint64_t highway_hash64(std::span<const std::byte> bytes,
                             const std::array<std::uint64_t, 4>& key) noexcept;

}  // namespace headrace::detail
