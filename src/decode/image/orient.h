#pragma once
/// \file
/// The eight orientations of EXIF: where stored pixels are in the picture as it is to be seen.
///
/// Threads: functions; a sink has one owner.
#include "decode/image/image_header.h"

namespace headrace::detail {

constexpr ImageSize oriented(ImageSize size, Orientation orientation) noexcept {
  return is_transposed(orientation) ? ImageSize{size.width, size.height} : size;
}

/// What an orientation does. A stored pixel (x, y) is seen at (x or y, from the left or right; y or
/// x, from top or bottom).
struct Turn {
  bool is_transposed;
  bool is_mirrored;     ///< What is seen, left and right.
  bool is_upside_down;  ///< What is seen, top and bottom.
};
const Turn& turn_of(Orientation orientation) noexcept;

/// Where the stored image (of `stored` pixels) has what is `region` of the oriented one.
Rect stored_region(const Rect& region, ImageSize stored, Orientation orientation) noexcept;

/// Collects the stored rows of a region and gives them oriented. Takes the thread's scratch.
class OrientingSink final : public RowSink {
 public:
  /// `size` is the region's, stored.
  OrientingSink(ImageSize size, Orientation orientation, std::uint32_t channels) noexcept;
  bool is_ready() const noexcept { return pixels_ != nullptr; }
  void take(const Rows& rows) noexcept override;
  void give(RowSink& sink) const noexcept;

 private:
  const ImageSize stored_;
  const ImageSize oriented_;
  const Orientation orientation_;
  const std::uint32_t channels_;
  std::uint32_t taken_ = 0;
  std::uint8_t* pixels_;
};

}  // namespace headrace::detail
