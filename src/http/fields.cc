// Both ends of a connection must agree on where a message ends, or an answer is taken for that of
// another request. So nothing ambiguous passes: one length, chunked as the only coding and not
// beside a length, no folded lines, no bare line feed, no space before a colon.
//
// A head is read once, line by line, on every request: no allocation, and names are told apart by
// their length first.
#include "http/fields.h"

#include <array>
#include <cstring>
#include <iterator>

#include "base/list_item.h"
#include "base/strings.h"
#include "http/character_table.h"

namespace headrace::http {
namespace {

constexpr char lower(char c) noexcept {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c + ('a' - 'A')) : c;
}

// RFC 9110 section 5.6.2: tchar.
constexpr std::array<bool, 256> kIsToken = letters_digits_and("!#$%&'*+-.^_`|~");

bool has_control(std::string_view text) noexcept {
  unsigned found = 0;  // no early exit: the loop stays free of branches
  for (char ch : text) {
    const auto c = static_cast<unsigned char>(ch);
    found |= static_cast<unsigned>((c < 0x20 && c != '\t') || c == 0x7f);
  }
  return found != 0;
}

}  // namespace

bool equals_ignoring_case(std::string_view a, std::string_view b) noexcept {
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (lower(a[i]) != lower(b[i])) return false;
  }
  return true;
}

void append_decimal(std::uint64_t value, std::string& out) {
  char digits[20];
  char* begin = std::end(digits);
  do {
    *--begin = static_cast<char>('0' + value % 10);
    value /= 10;
  } while (value != 0);
  out.append(begin, static_cast<std::size_t>(std::end(digits) - begin));
}

bool next_field(std::string_view& fields, Field& out) noexcept {
  if (fields.empty()) return false;
  const std::size_t end = fields.find('\n');
  std::string_view line = fields.substr(0, end);
  fields.remove_prefix(end == std::string_view::npos ? fields.size() : end + 1);
  if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
  const std::size_t colon = line.find(':');
  if (colon == std::string_view::npos) return false;
  out.name = line.substr(0, colon);
  out.value = trim(line.substr(colon + 1));
  return true;
}

std::string_view find_field(std::string_view fields, std::string_view name) noexcept {
  Field field;
  while (next_field(fields, field)) {
    if (equals_ignoring_case(field.name, name)) return field.value;
  }
  return {};
}

bool list_contains(std::string_view value, std::string_view token) noexcept {
  while (!value.empty()) {
    if (equals_ignoring_case(take_item(value), token)) return true;
  }
  return false;
}

const char* Framing::apply(const Field& field) noexcept {
  switch (field.name.size()) {
    case 10:
      if (equals_ignoring_case(field.name, "connection")) {
        says_close = says_close || list_contains(field.value, "close");
        says_keep_alive = says_keep_alive || list_contains(field.value, "keep-alive");
      }
      return nullptr;
    case 14:
      if (equals_ignoring_case(field.name, "content-length")) {
        const auto length = parse_decimal<std::uint64_t>(field.value);
        if (!length) return "Content-Length is not a number";
        if (content_length && *content_length != *length)
          return "two different Content-Length fields";
        content_length = length;
      }
      return nullptr;
    case 17:
      if (equals_ignoring_case(field.name, "transfer-encoding")) {
        if (equals_ignoring_case(field.value, "identity")) return nullptr;
        if (is_chunked || !equals_ignoring_case(field.value, "chunked"))
          return "Transfer-Encoding other than chunked";
        is_chunked = true;
      }
      return nullptr;
    default:
      return nullptr;
  }
}

const char* Framing::finish() const noexcept {
  // RFC 9112 section 6.3, rule 3: a sign of request smuggling or of a broken proxy.
  return is_chunked && content_length ? "both Content-Length and chunked" : nullptr;
}

LineReader::Kind LineReader::next_line(std::string_view& line) noexcept {
  const std::size_t left = bytes_.size() - position_;
  const char* const begin = bytes_.data() + position_;
  const auto* const end =
      left == 0 ? nullptr : static_cast<const char*>(std::memchr(begin, '\n', left));
  if (end == nullptr) return Kind::kIncomplete;
  if (end == begin || end[-1] != '\r') return Kind::kBad;
  line = std::string_view(begin, static_cast<std::size_t>(end - begin) - 1);
  if (has_control(line)) return Kind::kBad;
  position_ += line.size() + 2;
  return Kind::kLine;
}

LineReader::Kind LineReader::next_field(Field& out) noexcept {
  std::string_view line;
  const Kind kind = next_line(line);
  if (kind != Kind::kLine) return kind;
  if (line.empty()) return Kind::kEnd;
  std::size_t colon = 0;
  // The name ends at the first character that no name may have; that must be the colon.
  while (colon < line.size() && kIsToken[static_cast<unsigned char>(line[colon])]) ++colon;
  if (colon == 0 || colon == line.size() || line[colon] != ':') return Kind::kBad;
  out.name = line.substr(0, colon);
  out.value = trim(line.substr(colon + 1));
  return Kind::kLine;
}

}  // namespace headrace::http
