#include "decode/image/augment.h"

#include <algorithm>
#include <array>
#include <utility>

#include "decode/image/affine.h"
#include "decode/image/color_shift.h"
#include "decode/image/exact_math.h"
#include "decode/image/image_random.h"
#include "decode/image/scratch.h"
#include "decode/image/tone.h"

namespace headrace::detail {
namespace {

constexpr double kMostMagnitude = 30;

struct Factors {
  double brightness, contrast, saturation, hue;
};

double around_one(double reach, ImageRandom& random) noexcept {
  return random.between(std::max(0.0, 1.0 - reach), 1.0 + reach);
}

void jitter(const ImageOptions::Jitter& reach, std::uint64_t key, const Canvas& canvas) noexcept {
  ImageRandom random(key, RandomUse::kJitter);
  // All are drawn, whether asked for or not: one option does not move the others.
  std::array<int, 4> order = {0, 1, 2, 3};
  for (std::uint32_t i = 3; i > 0; --i) std::swap(order[i], order[random.below(i + 1)]);
  Factors factors{};
  factors.brightness = around_one(reach.brightness, random);
  factors.contrast = around_one(reach.contrast, random);
  factors.saturation = around_one(reach.saturation, random);
  factors.hue = random.between(-reach.hue, reach.hue);
  for (const int what : order) {
    if (what == 0 && reach.brightness > 0) adjust_brightness(canvas, factors.brightness);
    if (what == 1 && reach.contrast > 0) adjust_contrast(canvas, factors.contrast);
    if (what == 2 && reach.saturation > 0) adjust_saturation(canvas, factors.saturation);
    if (what == 3 && reach.hue > 0) adjust_hue(canvas, factors.hue);
  }
}

void rand_augment(const ImageOptions::RandAugment& options, std::uint64_t key, const Canvas& canvas,
                  std::uint8_t* copy) noexcept {
  ImageRandom random(key, RandomUse::kAugment);
  for (std::uint32_t i = 0; i < options.operations; ++i) {
    const auto operation = static_cast<Operation>(random.below(kOperationCount));
    const bool is_negative = random.happens(0.5);
    apply_operation(operation, options.magnitude, is_negative,
                    options.interpolation == Interpolation::kBilinear, canvas, copy);
  }
}

bool has_jitter(const ImageOptions::Jitter& jitter) noexcept {
  return jitter != ImageOptions::Jitter{};
}

}  // namespace

bool is_augmented(const ImageOptions& options) noexcept {
  return has_jitter(options.jitter) || options.rand_augment.operations > 0;
}

Status augment(const ImageOptions& options, std::uint64_t key, const Canvas& canvas) {
  if (options.rand_augment.operations > 0) {
    std::uint8_t* copy = thread_scratch().take(ScratchUse::kWhole, canvas.bytes());
    if (copy == nullptr) return {Code::kExhausted, "no memory to augment an image"};
    rand_augment(options.rand_augment, key, canvas, copy);
  }
  if (has_jitter(options.jitter)) jitter(options.jitter, key, canvas);
  return {};
}

void apply_operation(Operation operation, std::uint32_t magnitude, bool is_negative,
                     bool is_bilinear, const Canvas& canvas, std::uint8_t* copy) noexcept {
  const double part = magnitude / kMostMagnitude;
  const double sign = is_negative ? -1 : 1;
  const auto move = [&](const Affine& from) { transform(canvas, from, is_bilinear, copy); };
  constexpr double kMostShift = 150.0 / 331.0;
  switch (operation) {
    case Operation::kIdentity:
      return;
    case Operation::kShearX:
      return move(shear_across(canvas.size, sign * 0.3 * part));
    case Operation::kShearY:
      return move(shear_down(canvas.size, sign * 0.3 * part));
    case Operation::kTranslateX:
      return move({.c = -sign * std::trunc(kMostShift * canvas.size.width * part)});
    case Operation::kTranslateY:
      return move({.f = -sign * std::trunc(kMostShift * canvas.size.height * part)});
    case Operation::kRotate:
      return move(rotation(sign * 30.0 * part));
    case Operation::kBrightness:
      return adjust_brightness(canvas, 1 + sign * 0.9 * part);
    case Operation::kColor:
      return adjust_saturation(canvas, 1 + sign * 0.9 * part);
    case Operation::kContrast:
      return adjust_contrast(canvas, 1 + sign * 0.9 * part);
    case Operation::kSharpness:
      return adjust_sharpness(canvas, 1 + sign * 0.9 * part, copy);
    case Operation::kPosterize:
      return posterize(canvas, static_cast<int>(round_even(8 - 4 * part)));
    case Operation::kSolarize:
      return solarize(canvas, 255.0 * (1 - part));
    case Operation::kAutoContrast:
      return stretch_contrast(canvas);
    case Operation::kEqualize:
      return equalize(canvas);
  }
}

}  // namespace headrace::detail
