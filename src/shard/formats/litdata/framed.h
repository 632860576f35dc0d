#pragma once
/// \file
/// Other chunks than the classic one: zstd frames inside a chunk (magic LDFZ01), and rows in an
/// Arrow file at its end (magic LDARW01). Pure.
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "headrace/status.h"
#include "shard/index/hri.h"

namespace headrace::detail {

inline constexpr std::uint64_t kFramedHeadBytes = 24;
inline constexpr std::uint64_t kFrameRecordBytes = 24;

/// The first 24 bytes of a framed chunk.
struct FramedHead {
  std::uint64_t item_count = 0;
  std::uint64_t frame_count = 0;
  /// Bytes of head, offsets and frame table: what parse_framed_tables() needs.
  std::uint64_t table_bytes() const noexcept {
    return kFramedHeadBytes + 4 * (item_count + 1) + kFrameRecordBytes * frame_count;
  }
};
/// Errors: kCorrupt (no such magic, no items, more frames than items), kUnsupported (version).
Result<FramedHead> parse_framed_head(std::span<const std::byte> head);

struct FramedTables {
  std::vector<std::uint64_t> offsets;  ///< item_count + 1, in the inflated items laid end to end.
  std::vector<Frame> frames;           ///< Follow one another, in the items and in the chunk.
};
/// `tables`: the first FramedHead::table_bytes() of a chunk of `chunk_bytes`. Errors: kCorrupt.
Result<FramedTables> parse_framed_tables(std::span<const std::byte> tables,
                                         std::uint64_t chunk_bytes);

/// Bytes of a zstd frame that tell its content size, at most (RFC 8878, 3.1.1.1).
inline constexpr std::uint64_t kZstdHeadBytes = 18;
/// Size that a zstd frame says it inflates to; nothing when it does not say, or is no zstd frame.
std::optional<std::uint64_t> zstd_content_bytes(std::span<const std::byte> frame_head);

inline constexpr std::uint64_t kArrowFooterBytes = 12;
/// Where the Arrow file of a chunk is.
struct ArrowSpan {
  std::uint64_t offset_bytes = 0;
  std::uint64_t length_bytes = 0;
};
/// `footer`: the last 12 bytes of a chunk of `chunk_bytes`. Nothing when they are no footer.
std::optional<ArrowSpan> parse_arrow_footer(std::span<const std::byte> footer,
                                            std::uint64_t chunk_bytes);

}  // namespace headrace::detail
