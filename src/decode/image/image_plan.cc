#include "decode/image/image_plan.h"

#include <algorithm>
#include <cmath>

#include "decode/image/exact_math.h"
#include "decode/image/image_random.h"

namespace headrace::detail {
namespace {

Rect whole(ImageSize size) noexcept { return {0, 0, size.width, size.height}; }

/// torchvision's RandomResizedCrop: what it takes when ten draws did not fit.
Rect central_crop(const ImageOptions& options, ImageSize size) noexcept {
  const double width = size.width, height = size.height;
  Rect crop = whole(size);
  if (width / height < options.ratio[0]) {
    crop.height =
        static_cast<std::uint32_t>(std::clamp(round_even(width / options.ratio[0]), 1.0, height));
  } else if (width / height > options.ratio[1]) {
    crop.width =
        static_cast<std::uint32_t>(std::clamp(round_even(height * options.ratio[1]), 1.0, width));
  }
  crop.x = (size.width - crop.width) / 2;
  crop.y = (size.height - crop.height) / 2;
  return crop;
}

Rect random_area(const ImageOptions& options, ImageSize size, std::uint64_t key) noexcept {
  constexpr int kTries = 10;
  ImageRandom random(key, RandomUse::kResizedCrop);
  const double area = static_cast<double>(size.width) * size.height;
  const double log_low = exact_log(options.ratio[0]), log_high = exact_log(options.ratio[1]);
  for (int i = 0; i < kTries; ++i) {
    const double target = area * random.between(options.scale[0], options.scale[1]);
    const double aspect = exact_exp(random.between(log_low, log_high));
    const double width = round_even(std::sqrt(target * aspect));
    const double height = round_even(std::sqrt(target / aspect));
    if (!(width >= 1 && width <= size.width && height >= 1 && height <= size.height)) continue;
    Rect crop{0, 0, static_cast<std::uint32_t>(width), static_cast<std::uint32_t>(height)};
    crop.y = random.below(std::uint64_t{size.height} - crop.height + 1);
    crop.x = random.below(std::uint64_t{size.width} - crop.width + 1);
    return crop;
  }
  return central_crop(options, size);
}

/// Longer sides follow as floor(longer * this / shorter), and are at least 1.
ImageSize resize_shorter(ImageSize size, std::uint32_t shorter) noexcept {
  const auto follow = [&](std::uint64_t longer, std::uint64_t by) {
    return static_cast<std::uint32_t>(std::min<std::uint64_t>(longer * shorter / by, UINT32_MAX));
  };
  if (size.width <= size.height) return {follow(size.height, size.width), shorter};
  return {shorter, follow(size.width, size.height)};
}

/// Along one axis: `length` pixels with `before` and `after` zeros around them, of which
/// [begin, begin + count) is shown; begin may lie in front of all.
struct Shown {
  std::uint32_t window = 0;  ///< First pixel that is shown.
  std::uint32_t count = 0;   ///< Pixels that are shown.
  std::uint32_t at = 0;      ///< Where the first one is.
};

Shown show(std::uint32_t length, std::int64_t begin, std::uint32_t count) noexcept {
  const std::int64_t first = std::clamp<std::int64_t>(begin, 0, length);
  const std::int64_t last = std::clamp<std::int64_t>(begin + count, 0, length);
  if (first >= last) return {};
  return {static_cast<std::uint32_t>(first), static_cast<std::uint32_t>(last - first),
          static_cast<std::uint32_t>(first - begin)};
}

/// Where torchvision's CenterCrop begins: it pads what is too small first, the odd pixel behind.
std::int64_t center_of(std::int64_t length, std::int64_t count) noexcept {
  if (length < count) return -((count - length) / 2);
  return static_cast<std::int64_t>(round_even(static_cast<double>(length - count) / 2));
}

std::int64_t crop_begin(const ImageOptions& options, std::int64_t length, std::int64_t count,
                        ImageRandom& random) noexcept {
  if (!options.is_crop_random) return center_of(length, count);
  const std::int64_t low = std::min<std::int64_t>(0, length - count);
  const auto span = static_cast<std::uint64_t>(std::max<std::int64_t>(0, length - count) - low);
  return low + random.below(span + 1);
}

void place(ImagePlan& plan, const Shown& across, const Shown& down) noexcept {
  plan.window = {across.window, down.window, across.count, down.count};
  plan.x = across.at;
  plan.y = down.at;
}

/// Pads and crops.
void crop_plan(const ImageOptions& options, std::uint64_t key, ImagePlan& plan) noexcept {
  const auto& pad = options.pad;
  const ImageSize padded{plan.resized.height + pad[1] + pad[3],
                         plan.resized.width + pad[0] + pad[2]};
  plan.canvas = options.crop.value_or(padded);
  std::int64_t top = 0, left = 0;
  if (options.crop) {
    ImageRandom random(key, RandomUse::kCrop);
    top = crop_begin(options, padded.height, plan.canvas.height, random);
    left = crop_begin(options, padded.width, plan.canvas.width, random);
  }
  place(plan, show(plan.resized.width, left - pad[0], plan.canvas.width),
        show(plan.resized.height, top - pad[1], plan.canvas.height));
}

void flip_plan(const ImageOptions& options, std::uint64_t key, ImagePlan& plan) noexcept {
  plan.is_mirrored = ImageRandom(key, RandomUse::kHorizontalFlip).happens(options.horizontal_flip);
  plan.is_upside_down = ImageRandom(key, RandomUse::kVerticalFlip).happens(options.vertical_flip);
}

}  // namespace

bool is_source_random(const ImageOptions& options) noexcept {
  return options.random_resized_crop.has_value() || options.is_crop_random;
}

ImagePlan plan_image(const ImageOptions& options, ImageSize size, std::uint64_t key) noexcept {
  ImagePlan plan{.source = whole(size), .resized = size, .window = {}, .canvas = {}};
  if (options.random_resized_crop) {
    plan.source = random_area(options, size, key);
    plan.resized = plan.canvas = *options.random_resized_crop;
    plan.window = whole(plan.canvas);
  } else {
    if (options.resize) plan.resized = *options.resize;
    if (options.resize_shorter > 0) plan.resized = resize_shorter(size, options.resize_shorter);
    crop_plan(options, key, plan);
  }
  flip_plan(options, key, plan);
  return plan;
}

}  // namespace headrace::detail
