#pragma once
/// \file
/// Sets of characters to look up. Private to src/http/.
#include <array>
#include <cstddef>
#include <string_view>

namespace headrace::http {

/// ASCII letters, digits and `others`.
constexpr std::array<bool, 256> letters_digits_and(std::string_view others) {
  std::array<bool, 256> table{};
  for (int c = '0'; c <= '9'; ++c) table[static_cast<std::size_t>(c)] = true;
  for (int c = 'a'; c <= 'z'; ++c) table[static_cast<std::size_t>(c)] = true;
  for (int c = 'A'; c <= 'Z'; ++c) table[static_cast<std::size_t>(c)] = true;
  for (char c : others) table[static_cast<unsigned char>(c)] = true;
  return table;
}

}  // namespace headrace::http
