#pragma once
/// \file
/// What the head of an answer means for the transfer that asked: where its body goes, and whether
/// it is what was asked for. Pure. Vendor error codes are the HttpProtocol's business.
#include <cstdint>
#include <optional>
#include <string_view>

#include "headrace/status.h"
#include "headrace/store.h"
#include "http/response.h"

namespace headrace::transfer {

enum class BodyUse : std::uint8_t {
  kNone,    ///< No body to read (or none worth it): the attempt ends with `status`.
  kSlab,    ///< `body_bytes` bytes into the slab.
  kError,   ///< Read as text and ask HttpProtocol::error_from().
  kText,    ///< kGet with a chunked body: decode as text, at most `body_bytes`, and copy.
  kAnswer,  ///< Control plane: read as text into the HttpAnswer.
};

struct Verdict {
  BodyUse use = BodyUse::kNone;
  Status status;  ///< kNone: outcome of the attempt. The message has no object name yet.
  std::uint64_t body_bytes = 0;         ///< kSlab, kText: exact length.
  std::uint64_t object_size_bytes = 0;  ///< 0: not told.
};

/// Verdict on the answer to a kGet, kPut or kPutPart.
/// Errors inside: kCorrupt (wrong or missing Content-Range, wrong length, object shorter than the
/// range), kChanged (another ETag), kUnsupported (a server without ranges).
Verdict judge_transfer(const Request& request, const http::ResponseHead& head);

/// Verdict on the answer to a control-plane call.
Verdict judge_call(const http::ResponseHead& head, bool is_head_request);

/// Whether an error answer, of which the vendor's table has made `code`, is none that a sound
/// server gives: no success and no refusal that the request allows.
bool is_doubtful_error(int http_status, Code code) noexcept;

/// Total of `Content-Range: bytes */total`, as 416 answers carry it.
std::optional<std::uint64_t> unsatisfied_total(std::string_view content_range) noexcept;

/// Retry-After in seconds, else the time until a RateLimit field's window ends in which nothing
/// remains; the date form is ignored. At most one hour.
std::optional<std::chrono::milliseconds> retry_after(const http::ResponseHead& head) noexcept;

}  // namespace headrace::transfer
