#pragma once
/// \file
/// HTTP/1.1 response heads and chunked bodies: bytes in, values out. Pure; bounded; fuzzed. RFC
/// 9112, RFC 9110.
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "headrace/status.h"

namespace headrace::http {

/// Longest head accepted, bytes. S3's are below 1 KiB; nginx's own limit for requests is 8 KiB a
/// line.
constexpr std::size_t kMaxHeadBytes = 16 << 10;

/// `Content-Range: bytes first-last/total`; the last byte is included, as on the wire.
struct ContentRange {
  std::uint64_t first = 0;
  std::uint64_t last = 0;
  std::optional<std::uint64_t> total;
};

/// A parsed head. The views point into the bytes given to parse_response_head().
struct ResponseHead {
  int status = 0;
  std::size_t head_bytes = 0;  ///< Including the blank line: the body starts here.
  bool keep_alive = true;
  bool is_chunked = false;
  std::optional<std::uint64_t> content_length;
  std::optional<ContentRange> content_range;
  std::string_view etag;    ///< Quotes included.
  std::string_view fields;  ///< All header lines, for header().
  /// Value of a header field, name without regard to case; empty when absent; the first when
  /// repeated.
  std::string_view header(std::string_view name) const noexcept;
};

/// Parses the head at the start of `bytes`. Returns its length, or 0 when it is not complete yet.
/// Errors: kCorrupt for anything that is not a well-formed HTTP/1.x head, conflicting lengths, or
/// more than kMaxHeadBytes.
Result<std::size_t> parse_response_head(std::string_view bytes, ResponseHead& out);

/// Length of the body by RFC 9112 section 6.3 for a response to `is_head_request`: a number, or
/// nullopt for chunked or until-close bodies (tell them apart by is_chunked).
std::optional<std::uint64_t> body_length(const ResponseHead& head, bool is_head_request) noexcept;

/// Decodes a chunked body piece by piece.
class ChunkedDecoder {
 public:
  /// Consumes from the front of `bytes`, appends payload to `out`, and returns how many bytes were
  /// used (all of them until the end of the body). Errors: kCorrupt; kExhausted when `out` would
  /// pass `max_bytes`.
  Result<std::size_t> feed(std::string_view bytes, std::string& out, std::size_t max_bytes);
  bool done() const noexcept { return state_ == State::kDone; }

 private:
  enum class State : std::uint8_t { kSize, kData, kDataEnd, kTrailer, kDone };
  State state_ = State::kSize;
  std::uint64_t chunk_left_bytes_ = 0;
  std::string line_;  // partial size or trailer line, at most 4 KiB
};

}  // namespace headrace::http
