#pragma once
/// \file
/// Reading one line of JSON without building anything: values are spans of the line. Pure; nothing
/// is allocated.
///
/// What is passed over is checked for balance of quotes, braces and brackets only; what is taken is
/// checked in full.
///
/// Threads: functions; JsonText and JsonFields have one owner.
#include <array>
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
  /// Passes over blanks; true when there is nothing else.
  bool is_at_end() noexcept;
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

inline std::string_view text_of(std::span<const std::byte> bytes) noexcept {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}
inline std::span<const std::byte> bytes_of(std::string_view text) noexcept {
  return std::as_bytes(std::span(text.data(), text.size()));
}

/// Bytes of a string's inner text once its escapes are replaced (UTF-8; a surrogate alone becomes
/// U+FFFD). Nothing: a broken escape.
std::optional<std::size_t> unescaped_bytes(std::string_view inner) noexcept;
/// Writes them. \pre out.size() == *unescaped_bytes(inner)
void unescape(std::string_view inner, std::span<std::byte> out) noexcept;

/// `line` without the blanks around it, and without a byte order mark in front.
std::string_view trim_json_line(std::string_view line) noexcept;

/// The fields of a line that is one object, in turn.
class JsonFields {
 public:
  /// `line`: from trim_json_line().
  explicit JsonFields(std::string_view line) noexcept;

  /// Takes the next field; false at the end. `name` holds until the next call; it is empty when it
  /// is too long (256 bytes) and has escapes.
  bool next(std::string_view& name, std::string_view& value) noexcept;
  /// Once next() was false: the line is an object from its begin to its end.
  bool is_whole() const noexcept { return is_whole_; }

 private:
  bool take_name(std::string_view& name) noexcept;

  JsonText text_;
  bool is_open_ = false;  ///< Behind the opening brace, with no fault so far.
  bool is_first_ = true;
  bool is_whole_ = false;
  std::array<std::byte, 256> buffer_;  ///< A name without its escapes.
};

}  // namespace headrace::detail
