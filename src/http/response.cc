// Strict where two readers could come to different ends of an answer (RFC 9112, sections 6 and 7):
// on a connection that is used again, a byte too many or too few would be taken for the beginning
// of the next answer, and data of one request would become those of another. Line ends inside
// chunked bodies must be CRLF, a chunk has the length that it says, and contradicting lengths in a
// head are refused (Framing).
//
// Everything that a server can make longer is bounded: the head by 16 KiB, a chunk line by 4 KiB,
// a body by what its caller allows.
#include "http/response.h"

#include <algorithm>

#include "base/strings.h"
#include "http/fields.h"

namespace headrace::http {
namespace {

// Longest chunk-size or trailer line kept while it is incomplete.
constexpr std::size_t kMaxLineBytes = 4 << 10;

Status corrupt(std::string_view what) {
  return Status(Code::kCorrupt, "malformed HTTP response: " + std::string(what));
}

constexpr bool is_digit(char c) noexcept { return c >= '0' && c <= '9'; }

/// "HTTP/1.x NNN[ reason]"; false when it is anything else.
bool parse_status_line(std::string_view line, int& status, bool& is_http_1_1) noexcept {
  if (line.size() < 12 || !line.starts_with("HTTP/1.") || !is_digit(line[7]) || line[8] != ' ')
    return false;
  if (!is_digit(line[9]) || !is_digit(line[10]) || !is_digit(line[11])) return false;
  if (line.size() > 12 && line[12] != ' ') return false;
  is_http_1_1 = line[7] != '0';
  status = (line[9] - '0') * 100 + (line[10] - '0') * 10 + (line[11] - '0');
  return status >= 100;
}

/// Returns nullptr, or what is wrong. Other units than bytes, and "bytes */total", leave `out`
/// empty.
const char* parse_content_range(std::string_view value, std::optional<ContentRange>& out) noexcept {
  constexpr const char* kBad = "Content-Range is not \"bytes first-last/total\"";
  if (value.size() < 6 || !equals_ignoring_case(value.substr(0, 6), "bytes ")) return nullptr;
  value = trim(value.substr(6));
  const std::size_t slash = value.find('/');
  if (slash == std::string_view::npos) return kBad;
  const std::string_view range = value.substr(0, slash);
  const std::string_view total = value.substr(slash + 1);
  ContentRange parsed;
  if (total != "*") {
    parsed.total = parse_decimal<std::uint64_t>(total);
    if (!parsed.total) return kBad;
  }
  if (range == "*") return nullptr;
  const std::size_t dash = range.find('-');
  if (dash == std::string_view::npos) return kBad;
  const auto first = parse_decimal<std::uint64_t>(range.substr(0, dash));
  const auto last = parse_decimal<std::uint64_t>(range.substr(dash + 1));
  if (!first || !last || *last < *first) return kBad;
  if (parsed.total && *last >= *parsed.total) return "Content-Range goes past its own total";
  parsed.first = *first;
  parsed.last = *last;
  out = parsed;
  return nullptr;
}

/// The head so far is good but not complete.
Result<std::size_t> incomplete(std::string_view bytes) {
  if (bytes.size() >= kMaxHeadBytes) return corrupt("head longer than 16 KiB");
  return std::size_t{0};
}

}  // namespace

std::string_view ResponseHead::header(std::string_view name) const noexcept {
  return find_field(fields, name);
}

Result<std::size_t> parse_response_head(std::string_view bytes, ResponseHead& out) {
  using Kind = LineReader::Kind;
  const std::string_view window = bytes.substr(0, kMaxHeadBytes);
  out = ResponseHead();
  LineReader reader(window, 0);
  std::string_view line;
  Kind kind = reader.next_line(line);
  if (kind == Kind::kIncomplete) {
    // Someone who does not speak HTTP is found out at the first bytes, not after a time-out.
    constexpr std::string_view kStart = "HTTP/1.";
    const std::size_t known = std::min(window.size(), kStart.size());
    if (window.substr(0, known) != kStart.substr(0, known))
      return corrupt("not an HTTP/1.x status line");
    return incomplete(bytes);
  }
  bool is_http_1_1 = false;
  if (kind == Kind::kBad || !parse_status_line(line, out.status, is_http_1_1))
    return corrupt("not an HTTP/1.x status line");
  const std::size_t fields_begin = reader.position();

  Framing framing;
  Field field;
  std::size_t fields_end = fields_begin;
  while ((kind = reader.next_field(field)) == Kind::kLine) {
    fields_end = reader.position();
    if (const char* wrong = framing.apply(field)) return corrupt(wrong);
    if (field.name.size() == 4 && out.etag.empty() && equals_ignoring_case(field.name, "etag"))
      out.etag = field.value;
    if (field.name.size() == 13 && equals_ignoring_case(field.name, "content-range")) {
      if (const char* wrong = parse_content_range(field.value, out.content_range))
        return corrupt(wrong);
    }
  }
  if (kind == Kind::kBad) return corrupt("header field");
  if (kind == Kind::kIncomplete) return incomplete(bytes);
  if (const char* wrong = framing.finish()) return corrupt(wrong);

  out.head_bytes = reader.position();
  framing.fill(out, is_http_1_1);
  out.fields = bytes.substr(fields_begin, fields_end - fields_begin);
  return out.head_bytes;
}

std::optional<std::uint64_t> body_length(const ResponseHead& head, bool is_head_request) noexcept {
  if (is_head_request || head.status < 200 || head.status == 204 || head.status == 304) return 0;
  if (head.is_chunked) return std::nullopt;
  return head.content_length;
}

namespace {

/// Chunk size of "1a2b[;extension]"; nullopt when malformed or above 2^60, which no real chunk is.
std::optional<std::uint64_t> parse_chunk_size(std::string_view line) noexcept {
  std::uint64_t size = 0;
  std::size_t i = 0;
  for (; i < line.size(); ++i) {
    const char c = line[i];
    std::uint64_t digit = 0;
    if (is_digit(c)) {
      digit = static_cast<std::uint64_t>(c - '0');
    } else if (c >= 'a' && c <= 'f') {
      digit = static_cast<std::uint64_t>(c - 'a') + 10;
    } else if (c >= 'A' && c <= 'F') {
      digit = static_cast<std::uint64_t>(c - 'A') + 10;
    } else {
      break;
    }
    // Before the next digit is added: the product stays inside 64 bits.
    if (size >= (std::uint64_t{1} << 56)) return std::nullopt;
    size = size * 16 + digit;
  }
  const std::string_view rest = trim(line.substr(i));
  if (i == 0 || (!rest.empty() && rest.front() != ';')) return std::nullopt;
  return size;
}

/// Moves bytes of `bytes` from `used` on to `line` until it ends in LF. False when the line is not
/// complete yet or too long (then it is longer than kMaxLineBytes).
bool take_line(std::string_view bytes, std::size_t& used, std::string& line) {
  while (used < bytes.size() && line.size() <= kMaxLineBytes) {
    line.push_back(bytes[used++]);
    if (line.back() == '\n') return true;
  }
  return false;
}

}  // namespace

Result<std::size_t> ChunkedDecoder::feed(std::string_view bytes, std::string& out,
                                         std::size_t max_bytes) {
  std::size_t used = 0;
  while (used < bytes.size() && state_ != State::kDone) {
    if (state_ == State::kData) {
      const std::size_t take =
          static_cast<std::size_t>(std::min<std::uint64_t>(chunk_left_bytes_, bytes.size() - used));
      out.append(bytes.substr(used, take));
      used += take;
      chunk_left_bytes_ -= take;
      if (chunk_left_bytes_ == 0) state_ = State::kDataEnd;
      continue;
    }
    if (!take_line(bytes, used, line_)) {
      if (line_.size() > kMaxLineBytes) return corrupt("chunk line longer than 4 KiB");
      break;
    }
    if (line_.size() < 2 || line_[line_.size() - 2] != '\r')
      return corrupt("chunk line does not end in CRLF");
    const std::string_view line = std::string_view(line_).substr(0, line_.size() - 2);
    if (state_ == State::kDataEnd) {
      if (!line.empty()) return corrupt("chunk longer than its size");
      state_ = State::kSize;
    } else if (state_ == State::kTrailer) {
      if (line.empty()) state_ = State::kDone;
    } else {
      const auto size = parse_chunk_size(line);
      if (!size) return corrupt("chunk size");
      if (out.size() > max_bytes || *size > max_bytes - out.size()) {
        return Status(Code::kExhausted,
                      "HTTP response body is longer than " + std::to_string(max_bytes) + " bytes");
      }
      chunk_left_bytes_ = *size;
      state_ = *size == 0 ? State::kTrailer : State::kData;
    }
    line_.clear();
  }
  return used;
}

}  // namespace headrace::http
