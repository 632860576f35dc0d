// Lines are written by hand, into a buffer that is kept: one a request, and a JSON library would
// allocate for each. Keys are bytes and need not be UTF-8, but a line must be, or readers of JSON
// refuse it: broken bytes become U+FFFD one by one, the rest stays readable.
#include "store/log/access_line.h"

#include <algorithm>
#include <array>
#include <charconv>

namespace headrace {
namespace {

template <class Number>
void append_number(std::string& out, Number value) {
  std::array<char, 24> digits;
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), value).ptr;
  out.append(digits.data(), end);
}

void append_padded(std::string& out, std::int64_t value, std::size_t width) {
  const std::size_t begin = out.size();
  append_number(out, value);
  const std::size_t digits = out.size() - begin;
  if (digits < width) out.insert(begin, width - digits, '0');
}

/// RFC 3339: 2026-01-31T23:59:59.000001Z.
void append_time(std::string& out, std::chrono::sys_time<Microseconds> time) {
  const auto day = std::chrono::floor<std::chrono::days>(time);
  const std::chrono::year_month_day date(day);
  const std::chrono::hh_mm_ss clock(time - day);
  append_padded(out, static_cast<int>(date.year()), 4);
  out += '-';
  append_padded(out, static_cast<unsigned>(date.month()), 2);
  out += '-';
  append_padded(out, static_cast<unsigned>(date.day()), 2);
  out += 'T';
  append_padded(out, clock.hours().count(), 2);
  out += ':';
  append_padded(out, clock.minutes().count(), 2);
  out += ':';
  append_padded(out, clock.seconds().count(), 2);
  out += '.';
  append_padded(out, clock.subseconds().count(), 6);
  out += 'Z';
}

bool is_plain(char c) noexcept {
  return static_cast<unsigned char>(c) >= 0x20 && static_cast<unsigned char>(c) < 0x7f &&
         c != '"' && c != '\\';
}

/// Bytes of the UTF-8 character at the start of `text`; 0 when it is none (RFC 3629, table 3-7 of
/// the Unicode standard).
std::size_t character_bytes(std::string_view text) noexcept {
  const auto at = [&](std::size_t i) {
    return i < text.size() ? static_cast<unsigned char>(text[i]) : 0U;
  };
  const auto follows = [&](std::size_t i) { return (at(i) & 0xc0) == 0x80; };
  const unsigned first = at(0);
  if (first < 0x80) return 1;
  if (first >= 0xc2 && first < 0xe0) return follows(1) ? 2 : 0;
  if (first >= 0xe0 && first < 0xf0) {
    if ((first == 0xe0 && at(1) < 0xa0) || (first == 0xed && at(1) >= 0xa0)) return 0;
    return follows(1) && follows(2) ? 3 : 0;
  }
  if (first >= 0xf0 && first < 0xf5) {
    if ((first == 0xf0 && at(1) < 0x90) || (first == 0xf4 && at(1) >= 0x90)) return 0;
    return follows(1) && follows(2) && follows(3) ? 4 : 0;
  }
  return 0;
}

void append_escaped(std::string& out, std::string_view text) {
  while (!text.empty()) {
    const auto plain = static_cast<std::size_t>(
        std::find_if_not(text.begin(), text.end(), is_plain) - text.begin());
    out.append(text.substr(0, plain));
    text.remove_prefix(plain);
    if (text.empty()) return;
    const char c = text.front();
    const std::size_t bytes = character_bytes(text);
    if (bytes == 0) {
      out += "\\ufffd";
    } else if (bytes > 1) {
      out.append(text.substr(0, bytes));
    } else if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else {
      constexpr std::string_view kHex = "0123456789abcdef";
      out += "\\u00";
      out += kHex[static_cast<unsigned char>(c) >> 4];
      out += kHex[static_cast<unsigned char>(c) & 15];
    }
    text.remove_prefix(std::max<std::size_t>(bytes, 1));
  }
}

void append_object(std::string& out, std::string_view name, std::string_view root,
                   std::string_view key) {
  out.append(",\"").append(name).append("\":\"");
  append_escaped(out, root);
  out += '/';
  append_escaped(out, key);
  out += '"';
}

template <class Number>
void append_field(std::string& out, std::string_view name, Number value) {
  out.append(",\"").append(name).append("\":");
  append_number(out, value);
}

}  // namespace

void append_access_line(std::string& out, const AccessWriter& writer, const AccessRecord& record,
                        std::chrono::sys_time<Microseconds> finished) {
  out += "{\"time\":\"";
  append_time(out, finished);
  out += '"';
  append_field(out, "pid", writer.process_id);
  if (writer.rank) append_field(out, "rank", *writer.rank);
  out.append(",\"operation\":\"").append(record.operation) += '"';
  append_object(out, "object", record.root, record.key);
  if (!record.to_key.empty()) append_object(out, "target", record.root, record.to_key);
  if (!record.version.empty()) {
    out += ",\"version\":\"";
    append_escaped(out, record.version);
    out += '"';
  }
  if (record.is_transfer) {
    append_field(out, "offset", record.offset_bytes);
    append_field(out, "length", record.length_bytes);
    append_field(out, "bytes", record.moved_bytes);
  }
  out.append(",\"outcome\":\"").append(code_name(record.outcome)) += '"';
  append_field(out, "duration_us",
               std::chrono::duration_cast<Microseconds>(record.finished - record.started).count());
  out += "}\n";
}

}  // namespace headrace
