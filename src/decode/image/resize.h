#pragma once
/// \file
/// The two passes of a resize: across, which takes rows as a codec makes them, and down, which
/// makes the rows of the result one at a time. 8 bits a sample before, between and after.
///
/// Each pass has a form in plain C++ and, where the machine has AVX2, one in vectors; both give the
/// same bytes, because all of it is whole numbers.
///
/// Threads: functions.
#include <cstddef>
#include <cstdint>

#include "decode/image/resize_table.h"
#include "decode/image/rows.h"

namespace headrace::detail {

/// A pass writes so many bytes behind each of its rows, of no meaning.
inline constexpr std::size_t kRowSpill = 4;

struct ResizePasses {
  /// Writes `rows.count` rows of table.first.size() pixels to `out`. Row i begins at i *
  /// out_stride, with kRowSpill bytes behind it that may be written. Each row of `rows` is
  /// table.in_count pixels, the first of them in_begin.
  void (*across)(const ResizeTable& table, std::uint32_t channels, const Rows& rows,
                 std::uint8_t* out, std::size_t out_stride);
  /// Writes row `i` of the result, exactly `count_bytes` bytes; `rows` are the `taps` ones that
  /// it is made of.
  void (*down)(const ResizeTable& table, std::uint32_t i, const Rows& rows, std::size_t count_bytes,
               std::uint8_t* out);
};

extern const ResizePasses kScalarResize;
/// The fastest of this machine.
const ResizePasses& resize_passes() noexcept;

}  // namespace headrace::detail
