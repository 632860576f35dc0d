#pragma once
/// \file
/// What the storm tests and their workers agree on: files of known bytes.
#include <cstddef>
#include <cstdint>
#include <string>

namespace headrace {

inline constexpr std::uint64_t kStormFiles = 12;
inline constexpr std::uint64_t kStormFileBytes = std::uint64_t{1} << 20;
/// Reads are of so many bytes, or of twice as many: such files are made in another way.
inline constexpr std::uint64_t kStormGrid = std::uint64_t{128} << 10;
inline constexpr std::uint64_t kStormExtentBytes = 2 * kStormGrid + 4096;  ///< The largest file.

inline std::string storm_key(std::uint64_t file) { return "file-" + std::to_string(file); }
inline std::byte storm_byte(std::uint64_t file, std::uint64_t at) noexcept {
  return static_cast<std::byte>((file * 0x9e3779b97f4a7c15ULL + at * 0xbf58476d1ce4e5b9ULL) >> 40);
}

}  // namespace headrace
