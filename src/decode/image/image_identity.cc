// Libraries are asked which they are as they are loaded, where they can be: a system may replace
// one under a program that was built with another.
#include "decode/image/image_identity.h"

#include <cstddef>
#include <cstdio>
// Behind those that it needs.
#include <gif_lib.h>
#include <jerror.h>
#include <jpeglib.h>
#include <png.h>
#include <webp/decode.h>
#ifdef HEADRACE_HAS_TIFF
#include <tiffio.h>
#endif

#include <bit>
#include <cstdint>

#include "decode/image/augment.h"

namespace headrace::detail {
namespace {

/// Another one as soon as the same options give other pixels than before, or refuse other files.
constexpr int kPixelsVersion = 3;

bool is_random(const ImageOptions& options) noexcept {
  return options.is_crop_random || options.random_resized_crop || options.horizontal_flip > 0 ||
         options.vertical_flip > 0 || is_augmented(options);
}

std::string codec_versions() {
  jpeg_error_mgr jpeg{};
  jpeg_std_error(&jpeg);
  std::string text = "jpeg " + std::to_string(LIBJPEG_TURBO_VERSION_NUMBER);
  text += std::string(" ") + jpeg.jpeg_message_table[JMSG_VERSION];
  text += std::string(", png ") + png_get_libpng_ver(nullptr);
  text += ", webp " + std::to_string(WebPGetDecoderVersion());
  text += ", gif " + std::to_string(GIFLIB_MAJOR) + "." + std::to_string(GIFLIB_MINOR) + "." +
          std::to_string(GIFLIB_RELEASE);
#ifdef HEADRACE_HAS_TIFF
  text += std::string(", ") + TIFFGetVersion();
#endif
  return text;
}

class Fields {
 public:
  void add(std::uint64_t number) { text_ += " " + std::to_string(number); }
  void add(const std::optional<ImageSize>& size) {
    add(size ? size->height : 0);
    add(size ? size->width : 0);
  }
  void add(const std::optional<std::array<float, 3>>& numbers) {
    add(numbers ? 1 : 0);
    for (std::size_t i = 0; numbers && i < numbers->size(); ++i)
      add(std::bit_cast<std::uint32_t>((*numbers)[i]));
  }
  const std::string& text() const noexcept { return text_; }

 private:
  std::string text_;
};

}  // namespace

std::string image_identity(const ImageOptions& options, bool is_pil) {
  if (is_random(options)) return {};
  Fields fields;
  fields.add(options.resize);
  fields.add(options.resize_shorter);
  fields.add(options.crop);
  for (const std::uint32_t side : options.pad) fields.add(side);
  fields.add(options.mean);
  fields.add(options.stddev);
  fields.add(static_cast<std::uint64_t>(options.type));
  fields.add(static_cast<std::uint64_t>(options.layout));
  fields.add(static_cast<std::uint64_t>(options.mode));
  fields.add(static_cast<std::uint64_t>(options.interpolation));
  fields.add(options.applies_orientation ? 1 : 0);
  fields.add(options.is_exact ? 1 : 0);
  fields.add(options.allows_truncated ? 1 : 0);
  fields.add(is_pil ? 1 : 0);
  return "image " + std::to_string(kPixelsVersion) + fields.text() + ", " + codec_versions();
}

}  // namespace headrace::detail
