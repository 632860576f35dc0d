#pragma once
/// \file
/// Header fields of HTTP/1.1 messages: what requests and responses have in common. Pure; no
/// allocation. RFC 9110 section 5, RFC 9112 sections 5 and 6.
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace headrace::http {

/// One header field; the views point into the message. The value has no white space around it.
struct Field {
  std::string_view name;
  std::string_view value;
};

/// ASCII comparison without regard to case.
bool equals_ignoring_case(std::string_view a, std::string_view b) noexcept;

/// Appends `value` in decimal digits.
void append_decimal(std::uint64_t value, std::string& out);

/// Takes the first line off `fields` (as a parser left them in ResponseHead::fields or
/// RequestHead::fields) and returns it in `out`. False at the end.
bool next_field(std::string_view& fields, Field& out) noexcept;

/// Value of the first field of that name, name without regard to case; empty when absent.
std::string_view find_field(std::string_view fields, std::string_view name) noexcept;

/// True when the comma-separated list `value` has `token` as a member, without regard to case.
bool list_contains(std::string_view value, std::string_view token) noexcept;

/// The fields that decide where a body ends and whether the connection lives on.
struct Framing {
  std::optional<std::uint64_t> content_length;
  bool is_chunked = false;
  bool says_close = false;
  bool says_keep_alive = false;

  /// Looks at one field. Returns nullptr, or what is wrong with it.
  const char* apply(const Field& field) noexcept;
  /// Checks what only the whole head shows. Returns nullptr, or what is wrong.
  const char* finish() const noexcept;
  bool keep_alive(bool is_http_1_1) const noexcept {
    return !says_close && (is_http_1_1 || says_keep_alive);
  }
  /// Into the members of these names of a request's or response's head.
  template <class Head>
  void fill(Head& out, bool is_http_1_1) const noexcept {
    out.keep_alive = keep_alive(is_http_1_1);
    out.is_chunked = is_chunked;
    out.content_length = content_length;
  }
};

/// Reads a head line by line, strictly: CRLF only, no folded lines, no control characters, no space
/// before the colon.
class LineReader {
 public:
  enum class Kind : std::uint8_t { kLine, kEnd, kIncomplete, kBad };
  LineReader(std::string_view bytes, std::size_t position) noexcept
      : bytes_(bytes), position_(position) {}
  /// The next line without CRLF. kEnd never comes from here.
  Kind next_line(std::string_view& line) noexcept;
  /// The next field; kEnd at the blank line, which is consumed.
  Kind next_field(Field& out) noexcept;
  std::size_t position() const noexcept { return position_; }

 private:
  std::string_view bytes_;
  std::size_t position_;
};

}  // namespace headrace::http
