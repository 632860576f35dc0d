#pragma once
/// \file
/// Numbers of the `*.hri` format shared by its writer and its reader. Source: docs/formats.md,
/// "Side index".
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace headrace::detail::hri {

inline constexpr std::string_view kMagic{"HRINDEX\n", 8};
inline constexpr std::uint32_t kVersion = 2;
/// Of an index that does without broken shards: a reader that does not know of them must not take
/// it for the whole.
inline constexpr std::uint32_t kReducedVersion = 3;
inline constexpr std::size_t kHeaderBytes = 96;
inline constexpr std::size_t kBlockBytesOffset = 56;
inline constexpr std::size_t kChecksumOffset = 80;
inline constexpr std::size_t kSectionRecordBytes = 24;
/// More sections than any version will have; bounds the table that a reader looks at.
inline constexpr std::uint32_t kMostSections = 64;

enum Section : std::uint32_t {
  kSchema = 1,
  kText = 2,
  kObjects = 3,
  kShards = 4,
  kBoundGroups = 5,
  kBoundPacked = 6,
  kKeys = 7,
  kFrames = 8,
  kSectionEnd = 9,
};

inline constexpr std::uint16_t kFlagGaps = 1;
inline constexpr std::uint16_t kFlagNoBounds = 2;

}  // namespace headrace::detail::hri
