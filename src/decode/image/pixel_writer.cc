#include "decode/image/pixel_writer.h"

#include <algorithm>

#include "decode/image/rows.h"
#include "decode/image/scratch.h"

namespace headrace::detail {
namespace {

struct ChannelScale {
  float factor = 1.0F / 255;
  float offset = 0;
};

/// (s / 255 - mean) / stddev; an alpha channel is only divided by 255.
ChannelScale channel_scale(const ImageOptions& options, std::uint32_t channel) noexcept {
  if (!options.mean || channel >= 3) return {};
  const float stddev = options.stddev ? (*options.stddev)[channel] : 1.0F;
  return {1.0F / (255.0F * stddev), -(*options.mean)[channel] / stddev};
}

/// Of samples whose channels are first, first + 1, ... first + count - 1, again and again.
SampleScale make_scale(const ImageOptions& options, std::uint32_t first,
                       std::uint32_t count) noexcept {
  SampleScale scale;
  for (std::uint32_t i = 0; i < SampleScale::kPeriod; ++i) {
    const ChannelScale channel = channel_scale(options, first + i % count);
    scale.factor[i] = channel.factor;
    scale.offset[i] = channel.offset;
  }
  return scale;
}

}  // namespace

PixelWriter::PixelWriter(const ImageOptions& options, ImageSize size, std::byte* out)
    : size_(size),
      channels_(channel_count(options.mode)),
      type_(options.type),
      is_direct_(options.type == PixelType::kUint8 &&
                 (options.layout == PixelLayout::kHwc || options.mode == PixelMode::kGrey)),
      is_planar_(options.layout == PixelLayout::kChw && options.mode != PixelMode::kGrey),
      row_samples_(std::size_t{size.width} * channels_),
      out_(out) {
  if (is_direct_) return;
  row_ = thread_scratch().take(ScratchUse::kRow, row_samples_ + kRowPadding);
  plane_ = thread_scratch().take(ScratchUse::kPlane, row_samples_ + kRowPadding);
  for (std::uint32_t c = 0; c < (is_planar_ ? channels_ : 1); ++c)
    scale_[c] = make_scale(options, c, is_planar_ ? 1 : channels_);
}

std::uint8_t* PixelWriter::begin_row(std::uint32_t y) noexcept {
  return is_direct_ ? reinterpret_cast<std::uint8_t*>(out_) + y * row_samples_ : row_;
}

void PixelWriter::finish_row(std::uint32_t y) noexcept {
  if (is_direct_) return;
  if (is_planar_) return write_planes(y);
  pixel_conversions().convert(scale_[0], type_, row_, row_samples_,
                              out_ + y * row_samples_ * sample_bytes(type_));
}

void PixelWriter::write_planes(std::uint32_t y) noexcept {
  const std::size_t plane_samples = std::size_t{size_.height} * size_.width;
  const bool is_uint8 = type_ == PixelType::kUint8;
  std::uint8_t* planes[4];
  for (std::uint32_t c = 0; c < 4; ++c) {
    planes[c] = is_uint8 ? reinterpret_cast<std::uint8_t*>(out_) + c * plane_samples +
                               std::size_t{y} * size_.width
                         : plane_ + std::size_t{c} * size_.width;
  }
  split(planes);
  if (is_uint8) return;
  for (std::uint32_t c = 0; c < channels_; ++c) {
    const std::size_t at = c * plane_samples + std::size_t{y} * size_.width;
    pixel_conversions().convert(scale_[c], type_, planes[c], size_.width,
                                out_ + at * sample_bytes(type_));
  }
}

void PixelWriter::split(std::uint8_t* const planes[4]) const noexcept {
  if (channels_ == 3) return pixel_conversions().split(row_, size_.width, planes);
  for (std::uint32_t c = 0; c < channels_; ++c) {
    for (std::uint32_t x = 0; x < size_.width; ++x) planes[c][x] = row_[x * channels_ + c];
  }
}

}  // namespace headrace::detail
