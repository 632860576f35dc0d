#pragma once
/// \file
/// Percent-encoding as S3 and SigV4 want it (RFC 3986: everything but unreserved characters is
/// escaped, upper-case hex), and URL splitting. Pure.
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "headrace/status.h"

namespace headrace::http {

enum class Slash : std::uint8_t { kEscape, kKeep };
enum class Plus : std::uint8_t { kLiteral, kSpace };

/// Appends `bytes` escaped. Slash::kKeep for paths, kEscape for query names and values.
void append_encoded(std::string_view bytes, Slash slash, std::string& out);
/// Plus::kSpace writes '+' for a space, as keys in listings with encoding-type=url have it.
std::string encode(std::string_view bytes, Slash slash, Plus plus = Plus::kLiteral);

/// Undoes it. Plus::kSpace also reads '+' as a space: queries, and keys in listings with
/// encoding-type=url. Errors: kInvalidArgument for '%' without two hex digits, and for an escaped
/// or literal NUL.
Result<std::string> decode(std::string_view text, Plus plus = Plus::kLiteral);

using QueryList = std::vector<std::pair<std::string, std::string>>;

/// Splits "a=1&b&c=%20" into decoded pairs, in order; a name without '=' has an empty value. Empty
/// pieces are skipped. Errors: kInvalidArgument, as decode().
Result<QueryList> parse_query(std::string_view query, Plus plus = Plus::kSpace);

/// "scheme://host[:port][/path]" with a lower-case scheme of http or https. User info, queries and
/// fragments are refused.
struct HttpUrl {
  bool use_tls = false;
  std::string host;  ///< Without brackets for IPv6 addresses.
  std::uint16_t port = 80;
  bool has_default_port =
      true;          ///< True when `port` is the scheme's own: it is left out of the Host field.
  std::string path;  ///< Without trailing slash: "" or "/prefix".
  /// For the Host field: "host", "host:port", "[::1]:9000".
  std::string authority() const;
};

/// The URL as messages may show it: without user and password in front of the host and without
/// the query, which may be a signature. Text that is no URL comes back as it is.
std::string without_secrets(std::string_view url);

/// Errors: kInvalidArgument, with the text (without_secrets()) in the message.
Result<HttpUrl> parse_http_url(std::string_view text);

}  // namespace headrace::http
