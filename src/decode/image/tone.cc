#include "decode/image/tone.h"

#include <algorithm>
#include <array>

namespace headrace::detail {
namespace {

using Table = std::array<std::uint8_t, 256>;

void apply(const Canvas& canvas, std::uint32_t channel, const Table& table) noexcept {
  std::uint8_t* sample = canvas.pixels + channel;
  for (std::size_t i = canvas.pixel_count(); i > 0; --i, sample += canvas.channels)
    *sample = table[*sample];
}

template <class Map>
void apply_to_all(const Canvas& canvas, Map map) noexcept {
  Table table;
  for (int v = 0; v < 256; ++v) table[static_cast<std::size_t>(v)] = map(v);
  if (canvas.channels != canvas.color_count()) {
    for (std::uint32_t c = 0; c < canvas.color_count(); ++c) apply(canvas, c, table);
    return;
  }
  for (std::size_t i = 0; i < canvas.bytes(); ++i) canvas.pixels[i] = table[canvas.pixels[i]];
}

float mean_luma(const Canvas& canvas) noexcept {
  double sum = 0;
  const std::uint8_t* pixel = canvas.pixels;
  for (std::size_t i = canvas.pixel_count(); i > 0; --i, pixel += canvas.channels)
    sum += canvas.channels == 1 ? static_cast<float>(*pixel) : floor_luma(pixel);
  return static_cast<float>(sum / static_cast<double>(canvas.pixel_count()));
}

using Histogram = std::array<std::uint64_t, 256>;

Histogram count_values(const Canvas& canvas, std::uint32_t channel) noexcept {
  Histogram counts{};
  const std::uint8_t* sample = canvas.pixels + channel;
  for (std::size_t i = canvas.pixel_count(); i > 0; --i, sample += canvas.channels)
    ++counts[*sample];
  return counts;
}

std::size_t highest(const Histogram& counts) noexcept {
  std::size_t v = 255;
  while (v > 0 && counts[v] == 0) --v;
  return v;
}

std::size_t lowest(const Histogram& counts) noexcept {
  std::size_t v = 0;
  while (v < 255 && counts[v] == 0) ++v;
  return v;
}

Table stretch_table(const Histogram& counts) noexcept {
  const auto low = static_cast<float>(lowest(counts)), high = static_cast<float>(highest(counts));
  const bool is_plain = low == high;
  const float scale = is_plain ? 1.0F : (high - low) * (1.0F / 255);
  Table table;
  for (std::size_t v = 0; v < 256; ++v) {
    const float value = (static_cast<float>(v) - (is_plain ? 0.0F : low)) / scale;
    table[v] = static_cast<std::uint8_t>(std::clamp(value, 0.0F, 255.0F));
  }
  return table;
}

}  // namespace

void adjust_brightness(const Canvas& canvas, double factor) noexcept {
  const auto by = static_cast<float>(factor);
  apply_to_all(canvas, [by](int v) { return blend(static_cast<float>(v), 0, by, 0); });
}

void adjust_contrast(const Canvas& canvas, double factor) noexcept {
  const float mean = mean_luma(canvas);
  const auto by = static_cast<float>(factor), rest = static_cast<float>(1.0 - factor);
  apply_to_all(canvas, [=](int v) { return blend(static_cast<float>(v), mean, by, rest); });
}

void posterize(const Canvas& canvas, int bits) noexcept {
  const int mask = 0xFF << (8 - bits);
  apply_to_all(canvas, [mask](int v) { return static_cast<std::uint8_t>(v & mask); });
}

void solarize(const Canvas& canvas, double threshold) noexcept {
  apply_to_all(canvas, [threshold](int v) {
    return static_cast<std::uint8_t>(v >= threshold ? 255 - v : v);
  });
}

void stretch_contrast(const Canvas& canvas) noexcept {
  for (std::uint32_t c = 0; c < canvas.color_count(); ++c)
    apply(canvas, c, stretch_table(count_values(canvas, c)));
}

void equalize(const Canvas& canvas) noexcept {
  for (std::uint32_t c = 0; c < canvas.color_count(); ++c) {
    const Histogram counts = count_values(canvas, c);
    const std::uint64_t step = (canvas.pixel_count() - counts[highest(counts)]) / 255;
    if (step == 0) continue;
    Table table;
    std::uint64_t below = step / 2;
    for (std::size_t v = 0; v < 256; below += counts[v++])
      table[v] = static_cast<std::uint8_t>(std::min<std::uint64_t>(below / step, 255));
    apply(canvas, c, table);
  }
}

}  // namespace headrace::detail
