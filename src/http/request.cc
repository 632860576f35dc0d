#include "http/request.h"

#include <string>

#include "http/response.h"

namespace headrace::http {
namespace {

Status bad(std::string_view what) {
  return Status(Code::kInvalidArgument, "malformed HTTP request: " + std::string(what));
}

/// "METHOD target HTTP/1.x"; false when it is anything else.
bool parse_request_line(std::string_view line, RequestHead& out, bool& is_http_1_1) noexcept {
  const std::size_t first = line.find(' ');
  const std::size_t last = line.rfind(' ');
  if (first == std::string_view::npos || first == 0 || last <= first + 1) return false;
  const std::string_view version = line.substr(last + 1);
  if (version != "HTTP/1.1" && version != "HTTP/1.0") return false;
  is_http_1_1 = version.back() == '1';
  out.method = line.substr(0, first);
  for (char c : out.method) {
    if (c < 'A' || c > 'Z') return false;
  }
  std::string_view target = line.substr(first + 1, last - first - 1);
  if (target.find(' ') != std::string_view::npos) return false;
  if (target.front() != '/') {
    const std::size_t scheme = target.find("://");
    if (scheme == std::string_view::npos) return false;
    const std::size_t path = target.find('/', scheme + 3);
    target = path == std::string_view::npos ? std::string_view("/") : target.substr(path);
  }
  out.target = target;
  const std::size_t question = target.find('?');
  out.path = target.substr(0, question);
  out.query = question == std::string_view::npos ? std::string_view() : target.substr(question + 1);
  return true;
}

}  // namespace

Result<std::size_t> parse_request_head(std::string_view bytes, RequestHead& out) {
  using Kind = LineReader::Kind;
  const std::string_view window = bytes.substr(0, kMaxHeadBytes);
  const bool is_full = bytes.size() >= kMaxHeadBytes;
  out = RequestHead();
  LineReader reader(window, 0);
  std::string_view line;
  Kind kind = reader.next_line(line);
  bool is_http_1_1 = false;
  if (kind == Kind::kLine && !parse_request_line(line, out, is_http_1_1)) kind = Kind::kBad;
  if (kind == Kind::kBad) return bad("request line");

  Framing framing;
  Field field;
  const std::size_t fields_begin = reader.position();
  std::size_t fields_end = fields_begin;
  bool has_host = false;
  while (kind != Kind::kIncomplete && (kind = reader.next_field(field)) == Kind::kLine) {
    fields_end = reader.position();
    if (const char* wrong = framing.apply(field)) return bad(wrong);
    if (field.name.size() == 4 && equals_ignoring_case(field.name, "host")) {
      if (has_host) return bad("two Host fields");
      has_host = true;
      out.host = field.value;
    }
    if (field.name.size() == 6 && equals_ignoring_case(field.name, "expect")) {
      // RFC 9110 section 10.1.1: a server may ignore what it does not know.
      out.expects_continue = equals_ignoring_case(field.value, "100-continue");
    }
  }
  if (kind == Kind::kBad) return bad("header field");
  if (kind == Kind::kIncomplete) {
    if (is_full) return bad("head longer than 16 KiB");
    return std::size_t{0};
  }
  if (const char* wrong = framing.finish()) return bad(wrong);
  if (is_http_1_1 && !has_host) return bad("no Host field");

  out.head_bytes = reader.position();
  framing.fill(out, is_http_1_1);
  out.fields = bytes.substr(fields_begin, fields_end - fields_begin);
  return out.head_bytes;
}

}  // namespace headrace::http
