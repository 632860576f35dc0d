#pragma once
/// \file
/// Which ranges of a file some boxes need, and which bytes of them go where. Pure.
///
/// Threads: functions.
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "headrace/checkpoint.h"

namespace headrace::checkpoint {

/// Whole sum blocks of one piece, next to one another.
struct BlockRun {
  std::uint32_t box = 0;           ///< That wants them.
  BlockRange blocks;               ///< Of the piece.
  std::uint64_t offset_bytes = 0;  ///< In the file, as is the length.
  std::uint64_t length_bytes = 0;
};

/// One request and the runs that lie in it, which may overlap.
struct BoxRequest {
  std::uint64_t offset_bytes = 0;
  std::uint64_t length_bytes = 0;
  std::vector<BlockRun> runs;
};

/// Errors: kInvalidArgument (a box outside its piece, numbers that do not fit together). Tags are
/// left aside: who does not decrypt needs none.
Status check_box(const WantedBox& box);

/// Bytes of a block of a box's piece, and how many of them lie in the file. \pre check_box().
std::uint64_t block_bytes(const WantedBox& box, std::uint64_t block) noexcept;
std::uint64_t stored_block_bytes(const WantedBox& box, std::uint64_t block) noexcept;

/// Requests of at most `most_bytes` (>= kSumBlockBytes), in order of the file; what lies within
/// `hole_bytes` of one another is one request. \pre check_box() of each.
std::vector<BoxRequest> plan_requests(std::span<const WantedBox> boxes, std::uint64_t most_bytes,
                                      std::uint64_t hole_bytes);

/// Copies what a box wants of the bytes [from, from + bytes.size()) of its piece.
void copy_box(const WantedBox& box, std::uint64_t from_bytes, std::span<const std::byte> bytes);

}  // namespace headrace::checkpoint
