#pragma once
/// \file
/// PixelWriter: finished rows of 8-bit pixels into the place, type and layout that a batch has.
///
/// Threads: one owner.
#include <cstddef>
#include <cstdint>

#include "decode/image/pixel_type.h"

namespace headrace::detail {

class PixelWriter {
 public:
  /// `out` takes size.height * size.width * channels samples; any alignment. Takes the thread's
  /// scratch rows.
  PixelWriter(const ImageOptions& options, ImageSize size, std::byte* out);

  /// False where memory is refused.
  bool is_ready() const noexcept { return is_direct_ || (row_ != nullptr && plane_ != nullptr); }
  /// Rows are written to their place as they are.
  bool is_direct() const noexcept { return is_direct_; }
  /// Where the samples of row `y` are to be written, channels side by side. Valid until
  /// finish_row().
  std::uint8_t* begin_row(std::uint32_t y) noexcept;
  void finish_row(std::uint32_t y) noexcept;
  std::size_t row_bytes() const noexcept { return row_samples_; }

  static std::uint64_t workspace_bytes(ImageSize size) noexcept {
    return (std::uint64_t{size.width} * 4 + 64) * 2;
  }

 private:
  void write_planes(std::uint32_t y) noexcept;
  /// Rows of the channels, in the batch for kUint8.
  void split(std::uint8_t* const planes[4]) const noexcept;

  const ImageSize size_;
  const std::uint32_t channels_;
  const PixelType type_;
  const bool is_direct_;
  const bool is_planar_;
  const std::size_t row_samples_;
  std::byte* const out_;
  std::uint8_t* row_ = nullptr;
  std::uint8_t* plane_ = nullptr;
  SampleScale scale_[4];  ///< By channel where it is planar; else only the first.
};

}  // namespace headrace::detail
