#pragma once
/// \file
/// Where the pixels of a result come from: the geometry of an image and its options, as numbers.
/// Pure.
///
/// Threads: functions.
#include <cstdint>

#include "decode/image/rows.h"

namespace headrace::detail {

/// In this order. All sizes > 0.
struct ImagePlan {
  /// What is resized, of the whole image after its orientation.
  Rect source;
  /// What it becomes.
  ImageSize resized;
  /// What is kept of that; may be empty, where a crop shows only padding.
  Rect window;
  /// Size of the result; the window lies at (x, y) of it, zeros around it.
  ImageSize canvas;
  std::uint32_t x = 0;
  std::uint32_t y = 0;
  /// The canvas is mirrored at last: left and right; top and bottom.
  bool is_mirrored = false;
  bool is_upside_down = false;
};

/// `size` is the image's after its orientation. The canvas's size does not depend on `key`.
ImagePlan plan_image(const ImageOptions& options, ImageSize size, std::uint64_t key) noexcept;

/// True where the source depends on the key: then any part of the image may be decoded.
bool is_source_random(const ImageOptions& options) noexcept;

}  // namespace headrace::detail
