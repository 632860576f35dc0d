#pragma once
/// \file
/// ImageDecoder: the values of a column of images, with one set of options.
///
/// Threads: immutable; several at once. What it takes meanwhile is a thread's own.
#include <string>

#include "decode/image/image_header.h"
#include "decode/image/image_identity.h"
#include "headrace/decode.h"

namespace headrace::detail {

class ImageDecoder final : public ValueDecoder {
 public:
  /// \pre check_image_options(options).ok()
  ImageDecoder(const ImageOptions& options, bool is_pil) : options_(options), is_pil_(is_pil) {}
  Result<DecodeNeeds> needs(std::span<const std::byte> value) const override;
  Status decode(std::span<const std::byte> value, std::uint64_t key,
                std::span<std::byte> out) const override;
  std::string identity() const override { return image_identity(options_, is_pil_); }

 private:
  /// The header, where the image is within the limits.
  Result<ImageHeader> header_of(std::span<const std::byte> value) const;

  const ImageOptions options_;
  const bool is_pil_;
};

}  // namespace headrace::detail
