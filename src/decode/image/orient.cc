#include "decode/image/orient.h"

#include <cstring>

#include "decode/image/scratch.h"

namespace headrace::detail {
namespace {

// By EXIF's number: row 0 and column 0 of what is stored are at the top and left; top and right;
// bottom and right; bottom and left; left and top; right and top; right and bottom; left and
// bottom.
constexpr Turn kTurns[] = {{false, false, false}, {false, true, false}, {false, true, true},
                           {false, false, true},  {true, false, false}, {true, true, false},
                           {true, true, true},    {true, false, true}};

}  // namespace

const Turn& turn_of(Orientation orientation) noexcept { return kTurns[orientation - 1]; }

Rect stored_region(const Rect& region, ImageSize stored, Orientation orientation) noexcept {
  const Turn& turn = turn_of(orientation);
  const ImageSize seen = oriented(stored, orientation);
  Rect out = region;
  if (turn.is_mirrored) out.x = seen.width - region.x - region.width;
  if (turn.is_upside_down) out.y = seen.height - region.y - region.height;
  return turn.is_transposed ? Rect{out.y, out.x, out.height, out.width} : out;
}

OrientingSink::OrientingSink(ImageSize size, Orientation orientation,
                             std::uint32_t channels) noexcept
    : stored_(size),
      oriented_(oriented(size, orientation)),
      orientation_(orientation),
      channels_(channels),
      pixels_(thread_scratch().take(
          ScratchUse::kOriented, std::size_t{size.width} * size.height * channels + kRowPadding)) {}

void OrientingSink::take(const Rows& rows) noexcept {
  const Turn& turn = turn_of(orientation_);
  for (std::uint32_t r = 0; r < rows.count && taken_ < stored_.height; ++r, ++taken_) {
    const std::uint8_t* from = rows.row(r);
    for (std::uint32_t i = 0; i < stored_.width; ++i, from += channels_) {
      std::uint32_t x = turn.is_transposed ? taken_ : i;
      std::uint32_t y = turn.is_transposed ? i : taken_;
      if (turn.is_mirrored) x = oriented_.width - 1 - x;
      if (turn.is_upside_down) y = oriented_.height - 1 - y;
      std::uint8_t* to = pixels_ + (std::size_t{y} * oriented_.width + x) * channels_;
      for (std::uint32_t c = 0; c < channels_; ++c) to[c] = from[c];
    }
  }
}

void OrientingSink::give(RowSink& sink) const noexcept {
  sink.take({pixels_, std::size_t{oriented_.width} * channels_, oriented_.height});
}

}  // namespace headrace::detail
