#pragma once
/// \file
/// KeySpace: keys below a prefix as numbers in [0, 1], by the characters seen at each place.
/// Guesses where between two keys others may lie. Pure; a wrong guess costs a request, nothing
/// else.
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace headrace {

class KeySpace {
 public:
  explicit KeySpace(std::size_t prefix_bytes = 0) : prefix_bytes_(prefix_bytes) {}
  /// Takes note of the characters of a listed key.
  void learn(std::string_view key);
  /// Rises with the key (not strictly) among keys made of the characters seen.
  double position(std::string_view key) const;
  /// Printable ASCII to put behind the prefix for a key near `position`, exact to about
  /// `resolution`. Empty: nothing is known.
  std::string name_at(double position, double resolution) const;

 private:
  using CharacterSet = std::array<std::uint64_t, 2>;  // a bit each of the 128 characters
  /// What was seen, and what belongs to it: all digits to a digit, all letters to two.
  static CharacterSet widened(const CharacterSet& seen);

  std::size_t prefix_bytes_;
  std::vector<CharacterSet> seen_;
  std::vector<CharacterSet> alphabet_;
};

}  // namespace headrace
