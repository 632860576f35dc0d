#pragma once
/// \file
/// PackPlan: which pieces of which documents make the sequences of one block. A pure function of
/// the documents' lengths.
#include <cstdint>
#include <span>
#include <vector>

#include "headrace/views.h"

namespace headrace::detail {

/// Tokens [begin, begin + length) of a document, counted in its block.
struct PackPiece {
  std::uint32_t document = 0;
  std::uint32_t begin = 0;
  std::uint32_t length = 0;
};

class PackPlan {
 public:
  /// `lengths`: tokens of each document, each below 2^32. Adds to `report` what happened unless it
  /// is nullptr. O(documents log documents).
  static PackPlan make(std::span<const std::uint32_t> lengths, const PackTokensOptions& options,
                       PackReport* report);

  std::uint32_t sequence_count() const noexcept {
    return static_cast<std::uint32_t>(first_piece_.size() - 1);
  }
  /// In the order in which they lie in the sequence. \pre sequence < sequence_count().
  std::span<const PackPiece> pieces(std::uint32_t sequence) const noexcept {
    return std::span(pieces_).subspan(first_piece_[sequence],
                                      first_piece_[sequence + 1] - first_piece_[sequence]);
  }
  /// Documents [first, second) that hold those of sequences [begin, end). \pre begin < end.
  struct Range {
    std::uint32_t begin = 0;
    std::uint32_t end = 0;
  };
  Range documents(std::uint32_t begin, std::uint32_t end) const noexcept;
  std::uint64_t memory_bytes() const noexcept {
    return pieces_.size() * sizeof(PackPiece) + first_piece_.size() * 4 + ranges_.size() * 8;
  }

 private:
  void finish(std::vector<std::vector<PackPiece>> sequences);

  std::vector<PackPiece> pieces_;
  std::vector<std::uint32_t> first_piece_ = {0};
  std::vector<Range> ranges_;  ///< Of each sequence.
  Range all_;
};

}  // namespace headrace::detail
