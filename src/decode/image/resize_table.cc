// The weights are those of Pillow's resize with a box: a filter that is stretched by the scale
// where the result is smaller, its centre at the middle of the output pixel, cut off at the edges
// and normalised. Its fixed point has 22 bits in 32-bit weights; ours are as precise as 16-bit
// weights allow, because two of them and two pixels are one multiply-add of a vector.
#include "decode/image/resize_table.h"

#include <algorithm>
#include <cmath>
#include <span>

namespace headrace::detail {
namespace {

double bilinear_at(double x) noexcept { return std::max(0.0, 1.0 - std::abs(x)); }

double bicubic_at(double x) noexcept {
  constexpr double kA = -0.5;
  x = std::abs(x);
  if (x < 1.0) return ((kA + 2.0) * x - (kA + 3.0)) * x * x + 1;
  if (x < 2.0) return (((x - 5) * x + 8) * x - 4) * kA;
  return 0.0;
}

double reach_of(Interpolation interpolation) noexcept {
  return interpolation == Interpolation::kBicubic ? 2.0 : 1.0;
}

struct Taps {
  std::uint32_t first = 0;
  std::uint32_t count = 0;
};

/// Places in the input and weights of the filter, for a request.
class AxisFilter {
 public:
  explicit AxisFilter(const AxisRequest& request)
      : request_(request),
        origin_(request.begin - request.clip_begin),
        size_(request.clip_end - request.clip_begin),
        scale_((request.end - request.begin) / request.out_size),
        stretch_(std::max(1.0, scale_)),
        reach_(reach_of(request.interpolation) * stretch_) {}

  /// What output `i` of all out_size is made of, counted from clip_begin.
  Taps taps(std::uint32_t i) const noexcept {
    const double center = origin_ + (i + 0.5) * scale_;
    const double limit = size_;
    if (request_.interpolation == Interpolation::kNearest)
      return {static_cast<std::uint32_t>(std::clamp(center, 0.0, limit - 1)), 1};
    // Limits first, so that what is cut to whole numbers is never negative.
    const auto low = static_cast<std::uint32_t>(std::clamp(center - reach_ + 0.5, 0.0, limit - 1));
    const auto high =
        static_cast<std::uint32_t>(std::clamp(center + reach_ + 0.5, low + 1.0, limit));
    return {low, high - low};
  }

  /// Normalised.
  void weigh(std::uint32_t i, Taps taps, double* out) const noexcept {
    if (taps.count == 1) {
      out[0] = 1;
      return;
    }
    const double at = taps.first + 0.5 - (origin_ + (i + 0.5) * scale_);
    const double shrink = 1.0 / stretch_;
    const bool is_bicubic = request_.interpolation == Interpolation::kBicubic;
    double sum = 0;
    for (std::uint32_t t = 0; t < taps.count; ++t) {
      const double x = (at + t) * shrink;
      out[t] = is_bicubic ? bicubic_at(x) : bilinear_at(x);
      sum += out[t];
    }
    const double share = 1.0 / sum;
    for (std::uint32_t t = 0; t < taps.count; ++t) out[t] *= share;
  }

 private:
  const AxisRequest& request_;
  const double origin_;
  const std::uint32_t size_;
  const double scale_;
  const double stretch_;
  const double reach_;
};

/// Bits so that the largest weight still fits in 15, with room for what rounding adds to it, and a
/// sum of products in 31.
int precision_for(double largest) noexcept {
  int bits = 14;
  while (bits < 21 && largest * (2 << bits) < 30000) ++bits;
  return bits;
}

/// Rounds to fixed point; what rounding loses goes to the largest, so that a plain area stays
/// plain.
void round_weights(std::span<const double> weights, int bits, std::int16_t* out) noexcept {
  const double one = 1 << bits;
  int rest = 1 << bits;
  for (std::size_t t = 0; t < weights.size(); ++t) {
    const double exact = weights[t] * one;
    out[t] = static_cast<std::int16_t>(exact + (exact < 0 ? -0.5 : 0.5));
    rest -= out[t];
  }
  std::int16_t& largest = *std::max_element(out, out + weights.size());
  largest = static_cast<std::int16_t>(largest + rest);
}

/// What one output is made of, and where its weights begin in a list of all.
struct ExactOutput {
  Taps taps;
  std::size_t at = 0;
};

/// Appends the weights of an output, without those at the end that are 0. Those at the beginning
/// stay: an output never begins before the one that it follows.
ExactOutput weigh_output(const AxisFilter& filter, std::uint32_t i, std::vector<double>& weights) {
  ExactOutput out{filter.taps(i), weights.size()};
  weights.resize(out.at + out.taps.count);
  filter.weigh(i, out.taps, weights.data() + out.at);
  while (out.taps.count > 1 && weights[out.at + out.taps.count - 1] == 0) --out.taps.count;
  return out;
}

/// Puts output `i`'s weights where its window of `taps` pixels fits into the input.
void place_weights(const ExactOutput& exact, std::span<const double> weights, std::uint32_t i,
                   ResizeTable& table) {
  const std::uint32_t begin = exact.taps.first - table.in_begin;
  const std::uint32_t most = table.in_count > table.taps ? table.in_count - table.taps : 0;
  table.first[i] = std::min(begin, most);
  round_weights(weights.subspan(exact.at, exact.taps.count), table.precision_bits,
                table.weights.data() + std::size_t{i} * table.taps + (begin - table.first[i]));
}

bool is_copy(const ResizeTable& table) noexcept {
  if (table.in_count != table.first.size()) return false;
  for (std::uint32_t i = 0; i < table.first.size(); ++i) {
    const std::uint32_t at = i - table.first[i];
    if (at >= table.taps || table.weights_of(i)[at] != 1 << table.precision_bits) return false;
  }
  return true;
}

}  // namespace

void make_resize_table(const AxisRequest& request, ResizeTable& table) {
  const AxisFilter filter(request);
  const std::uint32_t count = request.out_count;
  std::vector<ExactOutput> outputs(count);
  std::vector<double> weights;
  std::uint32_t low = UINT32_MAX, high = 0, most = 0;
  for (std::uint32_t i = 0; i < count; ++i) {
    const std::uint32_t at = request.is_flipped ? count - 1 - i : i;
    const ExactOutput& output = outputs[i] = weigh_output(filter, request.out_begin + at, weights);
    low = std::min(low, output.taps.first);
    high = std::max(high, output.taps.first + output.taps.count);
    most = std::max(most, output.taps.count);
  }
  table.in_begin = request.clip_begin + low;
  table.in_count = high - low;
  table.taps = (most + 1) / 2 * 2;
  table.precision_bits = precision_for(*std::max_element(weights.begin(), weights.end()));
  table.first.resize(count);
  table.weights.assign(std::size_t{count} * table.taps, 0);
  for (ExactOutput& output : outputs) output.taps.first += request.clip_begin;
  for (std::uint32_t i = 0; i < count; ++i) place_weights(outputs[i], weights, i, table);
  table.is_copy = is_copy(table);
}

std::uint64_t resize_table_bytes(std::uint64_t in_size, std::uint64_t out_size) noexcept {
  // Bicubic reaches 4 scales, and never more than the input; a weight is 8 bytes, then 2.
  const std::uint64_t taps = 4 * (in_size + out_size) + 8 * out_size;
  return taps * 10 * 2 + out_size * 64;
}

}  // namespace headrace::detail
