// A number with one place a character, in a base that is the number of characters seen at that
// place: keys that are evenly spread become evenly spread numbers. Sets are widened to the usual
// alphabets (digits, hex, letters), because the first few keys show only some of their characters.
#include "store/key_space.h"

#include <algorithm>
#include <bit>

namespace headrace {
namespace {

// A double tells apart about 15 decimal digits; further places change nothing.
constexpr double kFinest = 1e-15;
constexpr std::size_t kMostPlaces = 64;

constexpr bool is_in(const std::array<std::uint64_t, 2>& set, unsigned char c) {
  return c < 128 && (set[c / 64] >> (c % 64) & 1) != 0;
}
void add_range(std::array<std::uint64_t, 2>& set, char first, char last) {
  for (auto c = static_cast<unsigned char>(first); c <= static_cast<unsigned char>(last); ++c)
    set[c / 64] |= std::uint64_t{1} << (c % 64);
}
int count_in(const std::array<std::uint64_t, 2>& set, char first, char last) {
  int count = 0;
  for (char c = first; c <= last; ++c) count += is_in(set, static_cast<unsigned char>(c)) ? 1 : 0;
  return count;
}
int size_of(const std::array<std::uint64_t, 2>& set) {
  return std::popcount(set[0]) + std::popcount(set[1]);
}
/// How many characters of the set come before `c`.
int rank_of(const std::array<std::uint64_t, 2>& set, unsigned char c) {
  if (c >= 128) return size_of(set);
  const std::uint64_t below = (std::uint64_t{1} << (c % 64)) - 1;
  return c < 64 ? std::popcount(set[0] & below)
                : std::popcount(set[0]) + std::popcount(set[1] & below);
}
char character_at(const std::array<std::uint64_t, 2>& set, int rank) {
  for (unsigned char c = 0; c < 128; ++c) {
    if (is_in(set, c) && rank-- == 0) return static_cast<char>(c);
  }
  return '~';
}

}  // namespace

KeySpace::CharacterSet KeySpace::widened(const CharacterSet& seen) {
  CharacterSet all = seen;
  const int digits = count_in(seen, '0', '9');
  if (digits > 0) add_range(all, '0', '9');
  for (const char first : {'a', 'A'}) {
    const auto hex_end = static_cast<char>(first + 5);
    const auto end = static_cast<char>(first + 25);
    const int letters = count_in(seen, first, end);
    if (letters < 2) continue;  // one letter is likely the same in all keys
    const bool is_hex = digits > 0 && count_in(seen, first, hex_end) == letters;
    add_range(all, first, is_hex ? hex_end : end);
  }
  return all;
}

void KeySpace::learn(std::string_view key) {
  const std::string_view name = key.substr(std::min(prefix_bytes_, key.size()));
  const std::size_t places = std::min(name.size(), kMostPlaces);
  if (seen_.size() < places) {
    seen_.resize(places);
    alphabet_.resize(places);
  }
  for (std::size_t i = 0; i < places; ++i) {
    const auto c = static_cast<unsigned char>(name[i]);
    if (c < 0x20 || c > 0x7e || is_in(seen_[i], c)) continue;
    seen_[i][c / 64] |= std::uint64_t{1} << (c % 64);
    alphabet_[i] = widened(seen_[i]);
  }
}

double KeySpace::position(std::string_view key) const {
  const std::string_view name = key.substr(std::min(prefix_bytes_, key.size()));
  double at = 0;
  double width = 1;
  for (std::size_t i = 0; i < std::min(name.size(), alphabet_.size()) && width > kFinest; ++i) {
    const int size = size_of(alphabet_[i]);
    if (size == 0) break;
    const auto c = static_cast<unsigned char>(name[i]);
    width /= size;
    at += width * rank_of(alphabet_[i], c);
    if (!is_in(alphabet_[i], c)) break;
  }
  return std::min(at, 1.0);
}

std::string KeySpace::name_at(double position, double resolution) const {
  std::string name;
  double width = 1;
  for (std::size_t i = 0; i < alphabet_.size() && width > std::max(resolution, kFinest); ++i) {
    const int size = size_of(alphabet_[i]);
    if (size == 0) break;
    width /= size;
    const int rank = std::clamp(static_cast<int>(position / width), 0, size - 1);
    position = std::max(0.0, position - width * rank);
    name += character_at(alphabet_[i], rank);
  }
  return name;
}

}  // namespace headrace
