#pragma once
/// \file
/// Functions that give the same bits on every machine, which those of C libraries don't: sums and
/// products only, which IEEE 754 fixes. Good to about 1e-15, for the small arguments of images.
///
/// Threads: functions.
#include <cmath>

namespace headrace::detail {

/// e^x, by the series of x / 1024. \pre |x| < 100
inline double exact_exp(double x) noexcept {
  constexpr int kHalvings = 10;
  const double small = x / (1 << kHalvings);
  double sum = 1, term = 1;
  for (int i = 1; i < 12; ++i) sum += term *= small / i;
  for (int i = 0; i < kHalvings; ++i) sum *= sum;
  return sum;
}

/// ln(x), by ln((1 + y) / (1 - y)) = 2 (y + y^3 / 3 + ...) of the mantissa. \pre x > 0, finite
inline double exact_log(double x) noexcept {
  constexpr double kLn2 = 0.69314718055994530942;
  int exponent = 0;
  const double mantissa = std::frexp(x, &exponent);
  const double y = (mantissa - 0.75) / (mantissa + 0.75);
  double sum = 0, power = y;
  for (int i = 1; i < 40; i += 2, power *= y * y) sum += power / i;
  constexpr double kLnThreeQuarters = -0.28768207245178092744;
  return 2 * sum + kLnThreeQuarters + exponent * kLn2;
}

/// Sine. \pre |x| < 7
inline double exact_sin(double x) noexcept {
  double sum = x, term = x;
  for (int i = 1; i < 20; ++i) sum += term *= -x * x / ((2 * i) * (2 * i + 1));
  return sum;
}

/// Cosine. \pre |x| < 7
inline double exact_cos(double x) noexcept {
  double sum = 1, term = 1;
  for (int i = 1; i < 20; ++i) sum += term *= -x * x / ((2 * i - 1) * (2 * i));
  return sum;
}

/// Nearest whole number, ties to even, as Python's round().
inline double round_even(double x) noexcept {
  const double low = std::floor(x);
  const double rest = x - low;
  if (rest != 0.5) return rest < 0.5 ? low : low + 1;
  return std::fmod(low, 2) == 0 ? low : low + 1;
}

}  // namespace headrace::detail
