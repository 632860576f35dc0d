#pragma once
/// \file
/// What a reader needs of a window that was begun before. Pure.
#include <cstdint>
#include <vector>

#include "headrace/order.h"
#include "order/order_math.h"

namespace headrace {

/// The pieces of `window`, each cut down to the samples at positions of the lane from `from` on;
/// `begin` >= `end` where none is left. As they are when the whole window lies from there on.
/// `permutation`: of the window. O(samples of the window) when it does not.
inline std::vector<Piece> pieces_from(const Window& window,
                                      const order_math::Permutation& permutation,
                                      std::uint64_t from) {
  std::vector<Piece> pieces(window.pieces);
  if (from <= window.first_position && window.sample_count == window.shuffled_count) return pieces;
  for (Piece& piece : pieces) std::swap(piece.begin, piece.end);  // Empty, to be widened.
  const std::uint64_t end = window.first_position + window.sample_count;
  for (std::uint64_t position = std::max(from, window.first_position); position < end; ++position) {
    std::uint64_t index = position - window.first_position;
    if (window.is_shuffled) index = permutation(index);
    const WindowSample sample = order_math::sample_of_index(window, index);
    Piece& piece = pieces[sample.piece];
    piece.begin = std::min(piece.begin, sample.sample_in_block);
    piece.end = std::max(piece.end, sample.sample_in_block + 1);
  }
  return pieces;
}

}  // namespace headrace
