// Strict where a lenient reading would let two parties see different things: a bad escape is an
// error, not text, and so is a NUL, however it is written, as it would end a name in C.
//
// Only RFC 3986's unreserved characters stay as they are, and escapes are written in capitals: this
// is the form that AWS and Google sign.
#include "http/uri.h"

#include <algorithm>
#include <array>

#include "base/strings.h"
#include "http/character_table.h"
#include "http/fields.h"

namespace headrace::http {
namespace {

constexpr char kHex[] = "0123456789ABCDEF";

constexpr std::array<bool, 256> kIsUnreserved = letters_digits_and("-._~");

/// Where a name may stand in front of '@': a container, a repository.
constexpr std::string_view kNamingSchemes[] = {"abfs", "abfss", "wasb", "wasbs", "hf"};

/// The '@' behind user and password; npos: there are none. Passwords may have a '/' or '?' that
/// nobody escaped: a ':' in front of it that begins no port tells.
std::size_t user_end(std::string_view url, std::size_t host) noexcept {
  const std::size_t end = std::min(url.find_first_of("/?#", host), url.size());
  const std::string_view authority = url.substr(host, end - host);
  if (const std::size_t at = authority.rfind('@'); at != std::string_view::npos) return host + at;
  const std::size_t colon =
      authority.find(':', authority.starts_with('[') ? authority.find(']') : 0);
  if (colon == std::string_view::npos) return colon;
  const std::string_view port = authority.substr(colon + 1);
  if (!port.empty() && port.find_first_not_of("0123456789") == std::string_view::npos)
    return std::string_view::npos;
  // The last one: cut too much rather than too little. Those of a query are none of a user.
  const std::size_t at = url.substr(0, url.find('?', host)).rfind('@');
  return at != std::string_view::npos && at > end ? at : url.find('@', end);
}

}  // namespace

void append_encoded(std::string_view bytes, Slash slash, std::string& out) {
  std::size_t plain_begin = 0;  // runs of plain characters are appended at once
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    const auto c = static_cast<unsigned char>(bytes[i]);
    if (kIsUnreserved[c] || (c == '/' && slash == Slash::kKeep)) continue;
    out.append(bytes.substr(plain_begin, i - plain_begin));
    const char escaped[3] = {'%', kHex[c >> 4], kHex[c & 15]};
    out.append(escaped, 3);
    plain_begin = i + 1;
  }
  out.append(bytes.substr(plain_begin));
}

std::string encode(std::string_view bytes, Slash slash, Plus plus) {
  std::string out;
  std::size_t space = 0;
  while (plus == Plus::kSpace && (space = bytes.find(' ')) != std::string_view::npos) {
    append_encoded(bytes.substr(0, space), slash, out);
    out += '+';
    bytes.remove_prefix(space + 1);
  }
  append_encoded(bytes, slash, out);
  return out;
}

Result<std::string> decode(std::string_view text, Plus plus) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t i = 0; i < text.size(); ++i) {
    char c = text[i];
    if (c == '%') {
      const int high = i + 2 < text.size() ? hex_value(text[i + 1]) : -1;
      const int low = i + 2 < text.size() ? hex_value(text[i + 2]) : -1;
      if (high < 0 || low < 0)
        return Status(Code::kInvalidArgument,
                      "bad percent escape in \"" + std::string(text) + "\"");
      c = static_cast<char>(high * 16 + low);
      i += 2;
    } else if (c == '+' && plus == Plus::kSpace) {
      c = ' ';
    }
    if (c == '\0')
      return Status(Code::kInvalidArgument,
                    "NUL character in \"" + std::string(text.substr(0, i)) + "...\"");
    out.push_back(c);
  }
  return out;
}

Result<QueryList> parse_query(std::string_view query, Plus plus) {
  QueryList out;
  while (!query.empty()) {
    const std::size_t end = query.find('&');
    const std::string_view piece = query.substr(0, end);
    query.remove_prefix(end == std::string_view::npos ? query.size() : end + 1);
    if (piece.empty()) continue;
    const std::size_t equals = piece.find('=');
    HEADRACE_TRY_ASSIGN(std::string name, decode(piece.substr(0, equals), plus));
    std::string value;
    if (equals != std::string_view::npos) {
      HEADRACE_TRY_ASSIGN(value, decode(piece.substr(equals + 1), plus));
    }
    out.emplace_back(std::move(name), std::move(value));
  }
  return out;
}

std::string HttpUrl::authority() const {
  std::string text = host.find(':') == std::string::npos ? host : "[" + host + "]";
  if (!has_default_port) text += ":" + std::to_string(port);
  return text;
}

std::string without_secrets(std::string_view url) {
  const std::size_t scheme_end = url.find("://");
  if (scheme_end == std::string_view::npos) return std::string(url);
  const std::size_t host = scheme_end + 3;
  std::string out(url);
  if (const std::size_t at = user_end(url, host); at != std::string_view::npos) {
    const bool is_name =
        std::ranges::find(kNamingSchemes, url.substr(0, scheme_end)) != std::end(kNamingSchemes) &&
        url.substr(host, at - host).find(':') == std::string_view::npos;
    if (!is_name) out.replace(host, at - host, "***");
  }
  // Queries go as well: signed URLs have their secret there.
  const std::size_t query = out.find('?', host);
  if (query != std::string::npos) out.replace(query, std::string::npos, "?...");
  return out;
}

Result<HttpUrl> parse_http_url(std::string_view text) {
  const auto bad = [&](std::string_view why) {
    return Status(
        Code::kInvalidArgument,
        "\"" + without_secrets(text) + "\" is not a usable http(s) URL: " + std::string(why));
  };
  HttpUrl url;
  std::string_view rest = text;
  if (rest.size() >= 8 && equals_ignoring_case(rest.substr(0, 8), "https://")) {
    url.use_tls = true;
    rest.remove_prefix(8);
  } else if (rest.size() >= 7 && equals_ignoring_case(rest.substr(0, 7), "http://")) {
    rest.remove_prefix(7);
  } else {
    return bad("it must start with http:// or https://");
  }
  if (rest.find_first_of("?#@ \t\r\n") != std::string_view::npos)
    return bad("user names, queries and spaces are not allowed");
  const std::size_t slash = rest.find('/');
  std::string_view authority = rest.substr(0, slash);
  if (slash != std::string_view::npos) url.path = rest.substr(slash);
  while (!url.path.empty() && url.path.back() == '/') url.path.pop_back();

  std::string_view port_text;
  if (authority.starts_with('[')) {
    const std::size_t close = authority.find(']');
    if (close == std::string_view::npos) return bad("missing ]");
    url.host = authority.substr(1, close - 1);
    authority.remove_prefix(close + 1);
    if (!authority.empty() && authority.front() != ':') return bad("text after ]");
    if (!authority.empty()) port_text = authority.substr(1);
    if (authority == ":") return bad("empty port");
  } else {
    const std::size_t colon = authority.find(':');
    url.host = authority.substr(0, colon);
    if (colon != std::string_view::npos) {
      port_text = authority.substr(colon + 1);
      if (port_text.empty()) return bad("empty port");
    }
  }
  if (url.host.empty()) return bad("no host");
  url.port = url.use_tls ? 443 : 80;
  if (!port_text.empty()) {
    const auto port = parse_decimal<std::uint64_t>(port_text);
    if (!port || *port == 0 || *port > 65535) return bad("the port must be 1 to 65535");
    url.has_default_port = *port == url.port;
    url.port = static_cast<std::uint16_t>(*port);
  }
  return url;
}

}  // namespace headrace::http
