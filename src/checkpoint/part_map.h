#pragma once
/// \file
/// PartMap: a data file cut into parts of one size: which bytes of which pieces each of them holds.
/// Pure.
///
/// Threads: constant after construction.
#include <cstdint>
#include <string_view>
#include <vector>

#include "headrace/checkpoint.h"

namespace headrace::checkpoint {

/// A run of bytes of a piece, or of the header.
struct Slice {
  static constexpr std::uint32_t kHeader = UINT32_MAX;
  std::uint32_t piece = kHeader;
  std::uint64_t from_bytes = 0;  ///< In the piece, or in the header.
  std::uint64_t length_bytes = 0;
  std::uint64_t at_bytes = 0;  ///< In the part.
};

class PartMap {
 public:
  /// \pre part_bytes > kSumBlockBytes: then a block lies in two parts at most.
  PartMap(const DataLayout& layout, std::uint64_t part_bytes);

  std::uint32_t count() const noexcept { return count_; }
  /// All have the same but the last.
  std::uint64_t length_bytes(std::uint32_t part) const noexcept;
  /// What lies in a part, in order; without holes, but in a compressed file.
  std::vector<Slice> slices(std::uint32_t part) const;

 private:
  struct Run {
    std::uint64_t offset_bytes, length_bytes;
    std::uint32_t piece;
  };
  std::vector<Run> runs_;  ///< Of the file, in order; none is empty.
  std::uint64_t size_bytes_;
  std::uint64_t part_bytes_;
  std::uint32_t count_;
};

}  // namespace headrace::checkpoint
