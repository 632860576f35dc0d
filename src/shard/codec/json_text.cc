// Indexing reads every line of every file but needs few of its values, so that what is not needed
// is only passed over: with memchr() and find_first_of() from one quote or brace to the next, much
// faster than a parser that looks at every character. What is passed over may be bad inside; the
// reader that takes a value checks it in full.
//
// No recursion and no allocation, whatever the nesting of a line: what is open is one bit a level
// in 64 bits, and a line that is nested deeper than 64 is refused.
#include "shard/codec/json_text.h"

#include <cstring>

#include "base/strings.h"

namespace headrace::detail {
namespace {

// Braces and brackets open at once in a value that is passed over.
constexpr unsigned kMostOpen = 64;

// Length of the string that `text` begins with (behind its opening quote), without the closing
// one. Nothing: it has no end.
std::optional<std::size_t> string_bytes(std::string_view text) {
  std::size_t from = 0;
  while (from < text.size()) {
    const void* found = std::memchr(text.data() + from, '"', text.size() - from);
    if (found == nullptr) return std::nullopt;
    const auto at = static_cast<std::size_t>(static_cast<const char*>(found) - text.data());
    std::size_t slashes = 0;
    // A quote is part of the string when an odd number of backslashes stands before it.
    while (slashes < at && text[at - 1 - slashes] == '\\') ++slashes;
    if (slashes % 2 == 0) return at;
    from = at + 1;
  }
  return std::nullopt;
}

std::optional<std::uint32_t> hex4(std::string_view text) {
  if (text.size() < 4) return std::nullopt;
  std::uint32_t value = 0;
  for (std::size_t i = 0; i < 4; ++i) {
    const char c = text[i];
    std::uint32_t digit = 0;
    if (c >= '0' && c <= '9') {
      digit = static_cast<std::uint32_t>(c - '0');
    } else if (c >= 'a' && c <= 'f') {
      digit = static_cast<std::uint32_t>(c - 'a') + 10;
    } else if (c >= 'A' && c <= 'F') {
      digit = static_cast<std::uint32_t>(c - 'A') + 10;
    } else {
      return std::nullopt;
    }
    value = value << 4 | digit;
  }
  return value;
}

struct Escape {
  std::uint32_t code = 0;
  std::size_t bytes = 0;  // Of the text, the backslash included.
};

// `text` begins with a backslash.
std::optional<Escape> read_escape(std::string_view text) {
  constexpr std::string_view kNames = "\"\\/bfnrt";
  constexpr std::string_view kMeanings = "\"\\/\b\f\n\r\t";
  if (text.size() < 2) return std::nullopt;
  if (text[1] != 'u') {
    const std::size_t which = kNames.find(text[1]);
    if (which == std::string_view::npos) return std::nullopt;
    return Escape{static_cast<unsigned char>(kMeanings[which]), 2};
  }
  const auto first = hex4(text.substr(2));
  if (!first) return std::nullopt;
  if (*first < 0xd800 || *first > 0xdfff) return Escape{*first, 6};
  // Two escapes in UTF-16, a high surrogate and a low one, are one character. Any surrogate alone
  // has no UTF-8 and becomes U+FFFD.
  if (*first < 0xdc00 && text.substr(6).starts_with("\\u")) {
    const auto second = hex4(text.substr(8));
    if (!second) return std::nullopt;
    if (*second >= 0xdc00 && *second <= 0xdfff)
      return Escape{0x10000 + ((*first - 0xd800) << 10) + (*second - 0xdc00), 12};
  }
  return Escape{0xfffd, 6};
}

std::size_t utf8_bytes(std::uint32_t code) {
  if (code < 0x80) return 1;
  if (code < 0x800) return 2;
  return code < 0x10000 ? 3 : 4;
}

void write_utf8(std::uint32_t code, std::byte* out) {
  const std::size_t size = utf8_bytes(code);
  if (size == 1) {
    out[0] = static_cast<std::byte>(code);
    return;
  }
  constexpr std::uint32_t kHeads[] = {0, 0, 0xc0, 0xe0, 0xf0};
  for (std::size_t i = size - 1; i > 0; --i, code >>= 6)
    out[i] = static_cast<std::byte>(0x80 | (code & 0x3f));
  out[0] = static_cast<std::byte>(kHeads[size] | code);
}

// Plain characters before the next escape.
std::size_t plain_bytes(std::string_view text) {
  const void* found = text.empty() ? nullptr : std::memchr(text.data(), '\\', text.size());
  return found == nullptr ? text.size()
                          : static_cast<std::size_t>(static_cast<const char*>(found) - text.data());
}

}  // namespace

char JsonText::peek() noexcept {
  const std::size_t at = rest_.find_first_not_of(kWhiteSpace);
  rest_.remove_prefix(at == std::string_view::npos ? rest_.size() : at);
  return rest_.empty() ? '\0' : rest_.front();
}

bool JsonText::is_at_end() noexcept {
  peek();
  return rest_.empty();
}

bool JsonText::take(char wanted) noexcept {
  if (peek() != wanted) return false;
  rest_.remove_prefix(1);
  return true;
}

bool JsonText::take_string(std::string_view& inner) noexcept {
  if (!take('"')) return false;
  const auto length = string_bytes(rest_);
  if (!length) return false;
  inner = rest_.substr(0, *length);
  rest_.remove_prefix(*length + 1);
  return true;
}

bool JsonText::take_value(std::string_view& value) noexcept {
  const char first = peek();
  const char* begin = rest_.data();
  if (first == '"') {
    std::string_view inner;
    if (!take_string(inner)) return false;
  } else if (first == '{' || first == '[') {
    if (!skip_nested()) return false;
  } else {
    // A number, true, false or null: its text is checked by whoever takes it.
    const std::size_t length = rest_.find_first_of(",]} \t\r\n");
    if (length == 0) return false;
    rest_.remove_prefix(length == std::string_view::npos ? rest_.size() : length);
  }
  value = {begin, static_cast<std::size_t>(rest_.data() - begin)};
  return !value.empty();
}

// Passes over an object or array whose opening character comes next.
bool JsonText::skip_nested() noexcept {
  std::uint64_t are_objects = 0;  // Bit d: what is open at depth d is an object.
  unsigned depth = 0;
  do {
    const std::size_t at = rest_.find_first_of("\"{}[]");
    if (at == std::string_view::npos) return false;
    const char c = rest_[at];
    rest_.remove_prefix(at + 1);
    if (c == '"') {
      const auto length = string_bytes(rest_);
      if (!length) return false;
      rest_.remove_prefix(*length + 1);
    } else if (c == '{' || c == '[') {
      if (depth == kMostOpen) return false;
      const std::uint64_t bit = std::uint64_t{1} << depth++;
      are_objects = c == '{' ? are_objects | bit : are_objects & ~bit;
    } else {
      const bool is_object = (are_objects >> --depth & 1) != 0;
      if (is_object != (c == '}')) return false;
    }
  } while (depth > 0);
  return true;
}

std::optional<std::size_t> unescaped_bytes(std::string_view inner) noexcept {
  std::size_t bytes = 0;
  while (!inner.empty()) {
    const std::size_t plain = plain_bytes(inner);
    bytes += plain;
    inner.remove_prefix(plain);
    if (inner.empty()) break;
    const auto escape = read_escape(inner);
    if (!escape) return std::nullopt;
    bytes += utf8_bytes(escape->code);
    inner.remove_prefix(escape->bytes);
  }
  return bytes;
}

void unescape(std::string_view inner, std::span<std::byte> out) noexcept {
  std::byte* at = out.data();
  while (!inner.empty()) {
    const std::size_t plain = plain_bytes(inner);
    if (plain > 0) std::memcpy(at, inner.data(), plain);
    at += plain;
    inner.remove_prefix(plain);
    if (inner.empty()) break;
    const auto escape = read_escape(inner);
    if (!escape) return;
    write_utf8(escape->code, at);
    at += utf8_bytes(escape->code);
    inner.remove_prefix(escape->bytes);
  }
}

std::string_view trim_json_line(std::string_view line) noexcept {
  line = trim(line, kWhiteSpace);
  // Some writers put a byte order mark before the first line.
  if (line.starts_with("\xef\xbb\xbf")) line.remove_prefix(3);
  return trim(line, kWhiteSpace);
}

JsonFields::JsonFields(std::string_view line) noexcept : text_(line), is_open_(text_.take('{')) {}

bool JsonFields::next(std::string_view& name, std::string_view& value) noexcept {
  if (!is_open_) return false;
  if (text_.take('}')) {
    is_open_ = false;
    is_whole_ = text_.is_at_end();
    return false;
  }
  is_open_ = (is_first_ || text_.take(',')) && take_name(name) && text_.take(':') &&
             text_.take_value(value);
  is_first_ = false;
  return is_open_;
}

bool JsonFields::take_name(std::string_view& name) noexcept {
  if (!text_.take_string(name)) return false;
  if (name.find('\\') == std::string_view::npos) return true;
  const auto length = unescaped_bytes(name);
  if (!length) return false;
  if (*length > buffer_.size()) {
    name = {};
    return true;
  }
  unescape(name, std::span(buffer_).first(*length));
  name = {reinterpret_cast<const char*>(buffer_.data()), *length};
  return true;
}

}  // namespace headrace::detail
