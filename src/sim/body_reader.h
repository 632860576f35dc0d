#pragma once
/// \file
/// The body of one request: framing taken off, checksums computed, payload put into a file or into
/// memory. One owner.
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "http/request.h"
#include "sim/checksum.h"
#include "sim/s3_error.h"
#include "sim/storage.h"

namespace headrace::sim {

/// Takes chunked framing off: HTTP's own and that of "aws-chunked" bodies, which is the same with
/// ";chunk-signature=..." after the sizes. Signatures of chunks are not checked.
class ChunkReader {
 public:
  /// Consumes from the front of `bytes`. Sets `payload` to the next stretch of data in it (may be
  /// empty) and returns how many bytes were used, 0 only when `bytes` is empty or the body has
  /// ended; nullopt when malformed.
  std::optional<std::size_t> next(std::string_view bytes, std::string_view& payload);
  bool done() const noexcept { return state_ == State::kDone; }
  /// The trailer lines, each with CRLF.
  const std::string& trailer() const noexcept { return trailer_; }

 private:
  enum class State : std::uint8_t { kSize, kData, kDataEnd, kTrailer, kDone };
  bool take_line();
  State state_ = State::kSize;
  std::uint64_t left_bytes_ = 0;
  std::string line_;
  std::string trailer_;
};

class BodyReader {
 public:
  struct Target {
    int fd = -1;                       ///< Payload is written here; -1: kept in memory.
    std::size_t max_memory_bytes = 0;  ///< More is kMaxMessageLengthExceeded.
    std::uint64_t max_file_bytes = ~std::uint64_t{0};  ///< More is kEntityTooLarge.
    std::string_view expected_sha256;                  ///< 64 hex digits; empty: not checked.
    bool compute_md5 = false;                          ///< See md5().
    bool check_fields = true;  ///< False: checksum fields speak of something else than this body.
    bool keep = true;          ///< False: the payload is dropped (the request has failed already).
  };
  /// Reads of the head what decides framing and checks. Errors: kMissingContentLength,
  /// kInvalidDigest, kInvalidArgument, kEntityTooLarge.
  S3Code open(const http::RequestHead& head, const Target& target);

  /// Consumes from the front of `bytes`; returns how many. After an error the rest of the body is
  /// still consumed, so that the connection can go on; false in `is_framed` when that is impossible
  /// and it must be closed.
  std::size_t feed(std::string_view bytes);
  bool is_framed() const noexcept { return is_framed_; }
  bool done() const noexcept { return done_; }
  /// The first error, checks included. \pre done()
  S3Code finish();

  /// Of the payload. \pre compute_md5, and finish() returned kNone
  const Md5Digest& md5() const noexcept { return md5_; }
  const std::string& memory() const noexcept { return memory_; }
  std::uint64_t payload_bytes() const noexcept { return payload_bytes_; }
  /// Upper limit of what feed() can use now, so that the next request's bytes need not be read with
  /// this body's. 0: not known.
  std::uint64_t bytes_left() const noexcept { return is_http_chunked_ ? 0 : left_bytes_; }
  /// "name: value\r\n" of the checksums that were checked, for the answer.
  const std::string& echo() const noexcept { return echo_; }
  /// The first of them: name in lower case and value; empty without one.
  const std::pair<std::string, std::string>& stored_sum() const noexcept { return stored_sum_; }

 private:
  struct Check {
    std::string name;      ///< Of the field or trailer.
    std::string expected;  ///< Base64, or hex for the payload hash; empty until the trailer came.
    bool is_hex = false;
    S3Code failure = S3Code::kBadDigest;
    std::unique_ptr<Checksum> checksum;
  };
  S3Code add_check(ChecksumKind kind, Check check);
  S3Code add_header_checks(const http::RequestHead& head, const Target& target);
  std::size_t feed_framed(std::string_view bytes);
  void take_unchunked(std::string_view bytes);
  void take_payload(std::string_view bytes);
  void read_trailer(std::string_view trailer);
  void fail(S3Code code) noexcept {
    if (error_ == S3Code::kNone) error_ = code;
  }

  S3Code finish_md5();

  Target target_;
  std::vector<Check> checks_;
  std::unique_ptr<Checksum> md5_sum_;
  std::string expected_md5_;  // base64; empty: not said
  Md5Digest md5_{};
  std::string memory_;
  std::string echo_;
  std::pair<std::string, std::string> stored_sum_;
  std::uint64_t left_bytes_ = 0;  // of Content-Length
  std::uint64_t payload_bytes_ = 0;
  std::optional<std::uint64_t> expected_payload_bytes_;
  ChunkReader http_chunks_;
  ChunkReader aws_chunks_;
  bool is_http_chunked_ = false;
  bool is_aws_chunked_ = false;
  bool is_framed_ = true;
  bool done_ = false;
  S3Code error_ = S3Code::kNone;
};

}  // namespace headrace::sim
