#pragma once
/// \file
/// The table of offsets in front of a shard of MDS or LitData, as far as the first bytes of an
/// object hold it: what such shards are told by. Pure.
///
/// Threads: functions.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/endian.h"

namespace headrace::detail {

/// Offsets that ascend by chance are rarer than that.
inline constexpr std::size_t kLeastOffsets = 8;

/// Word 0 is the number of samples, those behind it are offsets. \pre 4 * (i + 1) <= head.size()
inline std::uint64_t table_word(std::span<const std::byte> head, std::size_t i) noexcept {
  return load_le<std::uint32_t>(head.data() + 4 * i);
}

/// The part of a table of `count` samples that `head` holds ascends.
inline bool table_ascends(std::span<const std::byte> head, std::uint64_t count) noexcept {
  const std::size_t words = std::min<std::uint64_t>(head.size() / 4, count + 2);
  for (std::size_t i = 2; i < words; ++i)
    if (table_word(head, i) < table_word(head, i - 1)) return false;
  return true;
}

}  // namespace headrace::detail
