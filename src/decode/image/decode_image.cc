// Options, and which columns have images.
#include <cmath>
#include <string>
#include <string_view>

#include "decode/image/image_decoder.h"
#include "decode/image/pixel_type.h"
#include "decode/image/ragged_header.h"
#include "decode/image/rows.h"

namespace headrace {
namespace detail {
namespace {

/// Above that, sums of sizes and pads would need more thought than they are worth.
constexpr std::uint32_t kMostSide = 1U << 16;

Status wrong(const std::string& what) { return {Code::kInvalidArgument, "image options: " + what}; }

bool is_probability(double x) noexcept { return x >= 0 && x <= 1; }
bool is_side(std::uint32_t x) noexcept { return x >= 1 && x <= kMostSide; }
bool is_size(const std::optional<ImageSize>& size) noexcept {
  return !size || (is_side(size->height) && is_side(size->width));
}

bool has_pad(const ImageOptions& options) noexcept {
  return options.pad != std::array<std::uint32_t, 4>{};
}

Status check_sizes(const ImageOptions& options) {
  if (!is_size(options.resize) || !is_size(options.crop) || !is_size(options.random_resized_crop) ||
      options.resize_shorter > kMostSide)
    return wrong("sides are 1 .. " + std::to_string(kMostSide) + " pixels");
  for (const std::uint32_t pad : options.pad) {
    if (pad > kMostSide) return wrong("pad is at most " + std::to_string(kMostSide) + " pixels");
  }
  if (options.resize && options.resize_shorter > 0)
    return wrong("resize and resize_shorter exclude each other");
  const bool has_other =
      options.resize || options.resize_shorter > 0 || options.crop || has_pad(options);
  if (options.random_resized_crop && has_other)
    return wrong("random_resized_crop excludes resize, resize_shorter, crop and pad");
  if (options.is_crop_random && !options.crop) return wrong("a random crop needs crop");
  return {};
}

Status check_chances(const ImageOptions& options) {
  if (!is_probability(options.horizontal_flip) || !is_probability(options.vertical_flip))
    return wrong("flips are probabilities, 0 .. 1");
  if (!(options.scale[0] > 0 && options.scale[0] <= options.scale[1] && options.scale[1] <= 1))
    return wrong("scale is 0 < least <= most <= 1");
  if (!(options.ratio[0] >= 1e-3 && options.ratio[0] <= options.ratio[1] &&
        options.ratio[1] <= 1e3))
    return wrong("ratio is 0.001 <= least <= most <= 1000");
  const auto& jitter = options.jitter;
  for (const double x : {jitter.brightness, jitter.contrast, jitter.saturation}) {
    if (!(x >= 0 && x <= 1000)) return wrong("brightness, contrast and saturation are 0 .. 1000");
  }
  if (!(jitter.hue >= 0 && jitter.hue <= 0.5)) return wrong("hue is 0 .. 0.5");
  if (options.rand_augment.magnitude > 30) return wrong("rand_augment's magnitude is 0 .. 30");
  if (options.rand_augment.interpolation == Interpolation::kBicubic)
    return wrong("rand_augment's interpolation is nearest or bilinear");
  if (options.rand_augment.operations > 100) return wrong("rand_augment's operations: at most 100");
  return {};
}

Status check_values(const ImageOptions& options) {
  if (options.stddev && !options.mean) return wrong("stddev needs mean");
  if (options.mean && options.type == PixelType::kUint8)
    return wrong("mean and stddev need a type of floating point");
  for (std::size_t c = 0; c < 3; ++c) {
    if (options.mean && !std::isfinite((*options.mean)[c])) return wrong("mean is not finite");
    if (options.stddev && !((*options.stddev)[c] > 0 && std::isfinite((*options.stddev)[c])))
      return wrong("stddev is > 0");
  }
  return {};
}

/// Encodings of which each value is a file, or raw bytes that may be one. Others that are no arrays
/// and not named here are bytes as well: members of archives, files, columns of other formats.
bool is_never_image(std::string_view encoding) noexcept {
  constexpr std::string_view kPrefixes[] = {
      "list[",          "ndarray",  "array:",     "list:",
      "nullable_list:", "litdata:", "jpeg_array", "jpegarray"};
  constexpr std::string_view kNames[] = {"str",         "text", "json",   "str_int", "str_float",
                                         "str_decimal", "pkl",  "pickle", "npy",     "npz"};
  for (const std::string_view prefix : kPrefixes) {
    if (encoding.starts_with(prefix)) return true;
  }
  for (const std::string_view name : kNames) {
    if (encoding == name) return true;
  }
  return false;
}

std::string_view dtype_name(PixelType type) noexcept {
  switch (type) {
    case PixelType::kFloat16:
      return "float16";
    case PixelType::kBfloat16:
      return "bfloat16";
    case PixelType::kFloat32:
      return "float32";
    case PixelType::kUint8:
      break;
  }
  return "uint8";
}

OutputColumn output_column(const ImageOptions& options, const std::string& name) {
  ArrayType type{.dtype = std::string(dtype_name(options.type)),
                 .item_bytes = sample_bytes(options.type)};
  if (const auto size = options.output_size()) {
    const auto sides = image_shape(options, *size);
    type.shape.assign(sides.begin(), sides.end());
    return array_column(name, type);
  }
  return {.name = name, .encoding = "ndarray:" + type.dtype, .dtype = {}, .shape = {}};
}

class ImageDecode final : public Decode {
 public:
  explicit ImageDecode(const ImageOptions& options) : options_(options) {}

  Result<DecodedColumns> bind(const OutputColumn& stored) const override {
    if (!stored.dtype.empty() || is_never_image(stored.encoding)) {
      const std::string& has = stored.encoding.empty() ? stored.dtype : stored.encoding;
      return Status(Code::kInvalidArgument,
                    "column " + stored.name + " has values of encoding " + has +
                        "; images are decoded of columns of bytes, jpeg, png or pil");
    }
    return DecodedColumns{
        {.output = output_column(options_, stored.name),
         .decoder = std::make_shared<ImageDecoder>(options_, stored.encoding == "pil")}};
  }

 private:
  const ImageOptions options_;
};

}  // namespace
}  // namespace detail

std::optional<ImageSize> ImageOptions::output_size() const noexcept {
  if (random_resized_crop) return random_resized_crop;
  if (crop) return crop;
  if (!resize) return std::nullopt;
  return ImageSize{resize->height + pad[1] + pad[3], resize->width + pad[0] + pad[2]};
}

Result<std::shared_ptr<const Decode>> decode_image(const ImageOptions& options) {
  HEADRACE_TRY(detail::check_sizes(options));
  HEADRACE_TRY(detail::check_chances(options));
  HEADRACE_TRY(detail::check_values(options));
  return std::shared_ptr<const Decode>(std::make_shared<detail::ImageDecode>(options));
}

}  // namespace headrace
