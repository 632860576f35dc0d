#pragma once
/// \file
/// What is drawn at random about colours and shapes: RandAugment, then ColorJitter.
///
/// Threads: functions; a canvas has one owner.
#include "decode/image/canvas.h"
#include "headrace/status.h"

namespace headrace::detail {

bool is_augmented(const ImageOptions& options) noexcept;

/// Changes the canvas in place. Takes the thread's scratch. Errors: kExhausted.
Status augment(const ImageOptions& options, std::uint64_t key, const Canvas& canvas);

/// RandAugment's operations, in torchvision's order: part of what is drawn.
enum class Operation : std::uint8_t {
  kIdentity,
  kShearX,
  kShearY,
  kTranslateX,
  kTranslateY,
  kRotate,
  kBrightness,
  kColor,
  kContrast,
  kSharpness,
  kPosterize,
  kSolarize,
  kAutoContrast,
  kEqualize,
};
inline constexpr std::uint32_t kOperationCount = 14;

/// One operation at `magnitude` of 0 .. 30; `is_negative` turns the sign of those that have one.
/// `copy` holds canvas.bytes() bytes.
void apply_operation(Operation operation, std::uint32_t magnitude, bool is_negative,
                     bool is_bilinear, const Canvas& canvas, std::uint8_t* copy) noexcept;

}  // namespace headrace::detail
