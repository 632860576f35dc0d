#pragma once
/// \file
/// The footer of an ArrayRecord file: where its chunks are and how many records each has. Pure.
///
/// Threads: functions.
#include <cstdint>
#include <span>
#include <vector>

#include "headrace/status.h"
#include "shard/index/hri.h"

namespace headrace::detail {

/// Most decoded bytes of a footer: about 80 million chunks.
inline constexpr std::uint64_t kMostFooterBytes = std::uint64_t{1} << 30;

/// Offset of the footer's chunk. `block`: the last 64 KiB of a file of `size_bytes`. Errors:
/// kUnsupported (no ArrayRecord: says so), kCorrupt.
Result<std::uint64_t> parse_postscript(std::span<const std::byte> block, std::uint64_t size_bytes);

struct ArrayRecordFooter {
  /// A frame for each chunk; its raw bytes are the ends of the records (u64 each) and the records.
  std::vector<Frame> frames;
  std::uint64_t record_count = 0;
  std::uint64_t raw_bytes = 0;
};

/// `stored`: the file's bytes from the footer's chunk at `offset` on. Errors: kCorrupt (chunks out
/// of order or outside the file), kUnsupported.
Result<ArrayRecordFooter> parse_footer(std::span<const std::byte> stored, std::uint64_t offset);

}  // namespace headrace::detail
