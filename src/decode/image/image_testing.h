#pragma once
/// \file
/// Images for tests: pixels that differ everywhere, and files of them.
#include <cstddef>
#include <cstdint>
#include <cstdio>
// After that: it uses FILE and size_t.
#include <jpeglib.h>
#include <png.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "base/random.h"
#include "headrace/decode.h"

namespace headrace::detail::testing {

inline std::vector<std::uint8_t> noise(std::size_t count, std::uint64_t seed = 1) {
  Random random(seed);
  std::vector<std::uint8_t> out(count);
  for (auto& sample : out) sample = static_cast<std::uint8_t>(random.next());
  return out;
}

/// Smooth, so that a JPEG of it is close to it.
inline std::vector<std::uint8_t> gradient(std::uint32_t height, std::uint32_t width,
                                          std::uint32_t channels) {
  std::vector<std::uint8_t> out;
  for (std::uint32_t y = 0; y < height; ++y) {
    for (std::uint32_t x = 0; x < width; ++x) {
      const std::uint32_t samples[] = {x * 255 / width, y * 255 / height, (x + y) * 2 % 256, 200};
      for (std::uint32_t c = 0; c < channels; ++c)
        out.push_back(static_cast<std::uint8_t>(samples[c]));
    }
  }
  return out;
}

struct JpegForm {
  std::uint32_t channels = 3;
  int quality = 90;
  bool is_progressive = false;
  bool lacks_scans = false;  ///< Progressive, of 3 channels: brightness and colours never refined.
  bool has_full_color = false;  ///< 4:4:4, else 4:2:0.
  int orientation = 0;          ///< In EXIF; 0: no EXIF.
};

inline std::string exif_of(int orientation) {
  std::string out("Exif\0\0MM\0\x2a\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0", 25);
  out += static_cast<char>(orientation);
  return out + std::string(6, '\0');
}

inline std::string make_jpeg(const std::vector<std::uint8_t>& pixels, ImageSize size,
                             const JpegForm& form = {}) {
  jpeg_compress_struct to{};
  jpeg_error_mgr errors;
  to.err = jpeg_std_error(&errors);
  jpeg_create_compress(&to);
  unsigned char* memory = nullptr;
  unsigned long memory_bytes = 0;
  jpeg_mem_dest(&to, &memory, &memory_bytes);
  to.image_width = size.width;
  to.image_height = size.height;
  to.input_components = static_cast<int>(form.channels);
  to.in_color_space = form.channels == 1 ? JCS_GRAYSCALE : form.channels == 3 ? JCS_RGB : JCS_CMYK;
  jpeg_set_defaults(&to);
  jpeg_set_quality(&to, form.quality, TRUE);
  if (form.is_progressive) jpeg_simple_progression(&to);
  constexpr jpeg_scan_info kFirstScans[] = {{3, {0, 1, 2}, 0, 0, 0, 1}, {1, {0}, 1, 63, 0, 2}};
  if (form.lacks_scans) {
    to.scan_info = kFirstScans;
    to.num_scans = 2;
  }
  if (form.has_full_color) to.comp_info[0].h_samp_factor = to.comp_info[0].v_samp_factor = 1;
  jpeg_start_compress(&to, TRUE);
  if (form.orientation > 0) {
    const std::string exif = exif_of(form.orientation);
    jpeg_write_marker(&to, JPEG_APP0 + 1, reinterpret_cast<const JOCTET*>(exif.data()),
                      static_cast<unsigned>(exif.size()));
  }
  std::vector<std::uint8_t> row(std::size_t{size.width} * form.channels);
  for (std::uint32_t y = 0; y < size.height; ++y) {
    std::copy_n(pixels.begin() + static_cast<std::ptrdiff_t>(y * row.size()), row.size(),
                row.begin());
    JSAMPROW rows[] = {row.data()};
    jpeg_write_scanlines(&to, rows, 1);
  }
  jpeg_finish_compress(&to);
  std::string out(reinterpret_cast<const char*>(memory), memory_bytes);
  jpeg_destroy_compress(&to);
  std::free(memory);
  return out;
}

inline std::string make_png(const std::vector<std::uint8_t>& pixels, ImageSize size,
                            std::uint32_t format = PNG_FORMAT_RGB) {
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  image.width = size.width;
  image.height = size.height;
  image.format = format;
  png_alloc_size_t bytes = 0;
  png_image_write_to_memory(&image, nullptr, &bytes, 0, pixels.data(), 0, nullptr);
  std::string out(bytes, '\0');
  png_image_write_to_memory(&image, out.data(), &bytes, 0, pixels.data(), 0, nullptr);
  out.resize(bytes);
  return out;
}

/// A column of values without a form of their own.
inline OutputColumn bytes_column(const std::string& encoding = "bytes") {
  return {.name = "image", .encoding = encoding, .dtype = {}, .shape = {}};
}

inline Result<DecodedColumn> bind_images(const ImageOptions& options,
                                         const std::string& encoding = "bytes") {
  HEADRACE_TRY_ASSIGN(const auto decode, decode_image(options));
  HEADRACE_TRY_ASSIGN(DecodedColumns columns, decode->bind(bytes_column(encoding)));
  return std::move(columns.front());
}

/// What a value becomes, with options that are right.
inline Result<std::vector<std::byte>> decode_value(const ImageOptions& options,
                                                   const std::string& value, std::uint64_t key = 1,
                                                   const std::string& encoding = "bytes") {
  HEADRACE_TRY_ASSIGN(const DecodedColumn column, bind_images(options, encoding));
  const auto bytes = std::as_bytes(std::span(value));
  HEADRACE_TRY_ASSIGN(const DecodeNeeds needs, column.decoder->needs(bytes));
  std::vector<std::byte> out(needs.output_bytes);
  HEADRACE_TRY(column.decoder->decode(bytes, key, out));
  return out;
}

}  // namespace headrace::detail::testing
