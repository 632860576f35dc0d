#pragma once
/// \file
/// Where a Location field leads. Pure.
#include <cstdint>
#include <string_view>

#include "headrace/status.h"
#include "store/http_protocol.h"

namespace headrace::transfer {

/// Beyond it a chain of redirects is taken for a loop.
constexpr std::uint32_t kMaxRedirects = 5;

/// Whether an answer of `status` to `method` may be followed. 303 turns into a GET, so only GET and
/// HEAD follow it; a POST follows 307 and 308 only (RFC 9110, section 15.4).
bool is_redirect(int status, std::string_view method) noexcept;

/// Reads an absolute URL, "//host/path", "/path" or a path relative to `from_target` (path and
/// query of the request). Errors: kCorrupt (not such a thing), kDenied (from https to http).
Result<HttpRedirect> parse_redirect(std::string_view location, const HttpEndpoint& from,
                                    std::string_view from_target);

}  // namespace headrace::transfer
