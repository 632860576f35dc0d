#pragma once
/// \file
/// Reading one line of JSON without building anything: values are spans of the line. Pure; nothing
/// is allocated.
///
/// What is passed over is checked for balance of quotes, braces and brackets only; what is taken is
/// checked in full.
///
/// Threads: functions; JsonText has one owner.
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace headrace::detail {

/// Walks over a JSON text. Functions return false when it is not well formed.
class JsonText {
 public:
  explicit JsonText(std::string_view text) noexcept : rest_(text) {}

  /// Passes over blanks; the next character, '\0' at the end.
  char peek() noexcept;
  /// Passes over blanks and `wanted`.
  bool take(char wanted) noexcept;
  /// Takes a string; `inner` is what is between its quotes, as written.
  bool take_string(std::string_view& inner) noexcept;
  /// Takes any value, as written.
  bool take_value(std::string_view& value) noexcept;

 private:
  bool skip_nested() noexcept;
  std::string_view rest_;
};

/// Bytes of a string's inner text once its escapes are replaced (UTF-8; a surrogate alone becomes
/// U+FFFD). Nothing: a broken escape.
std::optional<std::size_t> unescaped_bytes(std::string_view inner) noexcept;
/// Writes them. \pre out.size() == *unescaped_bytes(inner)
void unescape(std::string_view inner, std::span<std::byte> out) noexcept;

}  // namespace headrace::detail
