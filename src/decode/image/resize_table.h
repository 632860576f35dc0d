#pragma once
/// \file
/// Which pixels along one axis make which, and how much of each: what both passes of a resize read.
/// Pure.
///
/// Threads: a table is immutable once made.
#include <cstdint>
#include <vector>

#include "headrace/decode.h"

namespace headrace::detail {

/// One axis of a resize: [begin, end) of the input becomes `out_size` pixels, of which
/// [out_begin, out_begin + out_count) are wanted.
struct AxisRequest {
  double begin = 0;
  double end = 0;
  /// Input pixels that exist for it: what a filter would reach outside is left out, as at the edge
  /// of an image. [floor(begin), ceil(end)) keeps what a crop does not show out of it.
  std::uint32_t clip_begin = 0;
  std::uint32_t clip_end = 0;
  std::uint32_t out_size = 0;
  std::uint32_t out_begin = 0;
  std::uint32_t out_count = 0;
  Interpolation interpolation = Interpolation::kBilinear;
  bool is_flipped = false;  ///< The wanted pixels come in reverse.
  bool operator==(const AxisRequest&) const = default;
};

/// Output i is sum(weight(i, t) * input[in_begin + first[i] + t], t < taps) >> precision_bits,
/// rounded, clamped to 0 .. 255.
/// Invariants: the weights of an output sum to exactly 1 << precision_bits; taps is even;
/// first[i] + taps <= in_count, but for in_count < taps, where first[i] is 0 and what is beyond has
/// weight 0. first[] never falls, or never rises where it is flipped.
struct ResizeTable {
  std::uint32_t in_begin = 0;
  std::uint32_t in_count = 0;
  std::uint32_t taps = 0;
  int precision_bits = 0;
  bool is_copy = false;  ///< Output i is input i.
  std::vector<std::uint32_t> first;
  std::vector<std::int16_t> weights;  ///< `taps` for each output.
  const std::int16_t* weights_of(std::uint32_t i) const noexcept {
    return weights.data() + std::size_t{i} * taps;
  }
};

/// Fills `table`. O(out_count * taps). \pre begin < end, the box touches [clip_begin, clip_end),
/// 0 < out_count, out_begin + out_count <= out_size.
void make_resize_table(const AxisRequest& request, ResizeTable& table);

/// Most bytes that a table of these sizes takes.
std::uint64_t resize_table_bytes(std::uint64_t in_size, std::uint64_t out_size) noexcept;

}  // namespace headrace::detail
