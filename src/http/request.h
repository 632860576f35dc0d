#pragma once
/// \file
/// HTTP/1.1 request heads as a server sees them: bytes in, values out. Pure; bounded; no
/// allocation. Used by the simulator. RFC 9112 section 3. The chunked decoder of response.h serves
/// request bodies as well.
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "headrace/status.h"
#include "http/fields.h"

namespace headrace::http {

/// A parsed head. The views point into the bytes given to parse_request_head().
struct RequestHead {
  std::string_view method;  ///< As sent: "GET".
  std::string_view target;  ///< As sent, still escaped, in origin form: "/bucket/key?list-type=2".
  std::string_view path;    ///< The part of target before '?', still escaped. Starts with '/'.
  std::string_view query;   ///< The part after '?', still escaped; empty when there is none.
  std::size_t head_bytes = 0;  ///< Including the blank line: the body starts here.
  bool keep_alive = true;
  bool is_chunked = false;
  bool expects_continue =
      false;  ///< "Expect: 100-continue": the client waits for an interim answer before the body.
  std::optional<std::uint64_t> content_length;  ///< Absent (and not chunked): no body.
  std::string_view host;                        ///< Of the Host field; required by HTTP/1.1.
  std::string_view fields;  ///< All header lines, for header() and next_field().
  /// Value of a header field, name without regard to case; empty when absent; the first when
  /// repeated.
  std::string_view header(std::string_view name) const noexcept { return find_field(fields, name); }
};

/// Parses the head at the start of `bytes`. Returns its length, or 0 when it is not complete yet.
/// Absolute-form targets
/// ("http://host/path") are reduced to origin form.
/// Errors: kInvalidArgument for anything that is not a well-formed HTTP/1.x head (answer 400 and
/// close), and for more than 16 KiB.
Result<std::size_t> parse_request_head(std::string_view bytes, RequestHead& out);

}  // namespace headrace::http
