// Two framings lie inside of each other: HTTP's chunks (or Content-Length) outside, aws-chunked
// inside. Both have the same grammar, so ChunkReader is used for both, one feeding the other.
//
// Invariants:
// - After an error the rest of the body is read but no longer stored or hashed, so that the next
//   request begins at its first byte. Only broken chunking of HTTP itself makes that impossible.
// - Every payload byte passes take_payload() once, in order: file, memory, MD5 and checksums see
//   the same bytes.
// - Nothing grows with what the client sends but memory_ (its limit comes with the target), one
//   line and the trailer (limits below).
// - A check whose value was announced for the trailer and did not come keeps an empty `expected`,
//   which no sum equals: the upload fails.
#include "sim/body_reader.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <span>
#include <tuple>

#include "base/strings.h"
#include "http/fields.h"
#include "sim/google_face.h"

namespace headrace::sim {
namespace {

constexpr std::size_t kMaxLineBytes = 4096;
constexpr std::size_t kMaxTrailerBytes = 16384;

std::optional<std::uint64_t> parse_hex(std::string_view text) noexcept {
  // 15 digits stay below 2^60, so no sum of sizes overflows.
  if (text.empty() || text.size() > 15) return std::nullopt;
  std::uint64_t value = 0;
  for (char c : text) {
    std::uint64_t digit = 0;
    if (c >= '0' && c <= '9') {
      digit = static_cast<std::uint64_t>(c - '0');
    } else if ((c | 0x20) >= 'a' && (c | 0x20) <= 'f') {
      digit = static_cast<std::uint64_t>((c | 0x20) - 'a' + 10);
    } else {
      return std::nullopt;
    }
    value = value * 16 + digit;
  }
  return value;
}

bool is_checksum_field(std::string_view name) {
  ChecksumKind kind;
  return checksum_kind_of(name, kind);
}

}  // namespace

/// Handles the complete line in line_ (CRLF still on it). False when malformed.
bool ChunkReader::take_line() {
  if (line_.size() < 2 || line_[line_.size() - 2] != '\r') return false;
  const std::string_view line(line_.data(), line_.size() - 2);
  if (state_ == State::kDataEnd) {
    if (!line.empty()) return false;
    state_ = State::kSize;
  } else if (state_ == State::kSize) {
    const auto size = parse_hex(trim(line.substr(0, line.find(';'))));
    if (!size) return false;
    left_bytes_ = *size;
    state_ = left_bytes_ > 0 ? State::kData : State::kTrailer;
  } else if (line.empty()) {
    state_ = State::kDone;
  } else {
    if (trailer_.size() + line_.size() > kMaxTrailerBytes) return false;
    trailer_ += line_;
  }
  line_.clear();
  return true;
}

std::optional<std::size_t> ChunkReader::next(std::string_view bytes, std::string_view& payload) {
  payload = {};
  if (bytes.empty() || state_ == State::kDone) return 0;
  if (state_ == State::kData) {
    payload = bytes.substr(
        0, static_cast<std::size_t>(std::min<std::uint64_t>(left_bytes_, bytes.size())));
    left_bytes_ -= payload.size();
    if (left_bytes_ == 0) state_ = State::kDataEnd;
    return payload.size();
  }
  const std::size_t newline = bytes.find('\n');
  const std::size_t used = newline == std::string_view::npos ? bytes.size() : newline + 1;
  if (line_.size() + used > kMaxLineBytes) return std::nullopt;
  line_ += bytes.substr(0, used);
  if (newline != std::string_view::npos && !take_line()) return std::nullopt;
  return used;
}

S3Code BodyReader::add_check(ChecksumKind kind, Check check) {
  auto checksum = Checksum::create(kind);
  if (!checksum) return S3Code::kInternalError;
  check.checksum = *std::move(checksum);
  checks_.push_back(std::move(check));
  return S3Code::kNone;
}

S3Code BodyReader::add_header_checks(const http::RequestHead& head, const Target& target) {
  if (target.compute_md5) {
    auto checksum = Checksum::create(ChecksumKind::kMd5);
    if (!checksum) return S3Code::kInternalError;
    md5_sum_ = *std::move(checksum);
  }
  if (!target.expected_sha256.empty()) {
    const S3Code code = add_check(
        ChecksumKind::kSha256,
        {"", std::string(target.expected_sha256), true, S3Code::kContentSha256Mismatch, nullptr});
    if (code != S3Code::kNone) return code;
  }
  std::string_view fields = target.check_fields ? head.fields : std::string_view();
  http::Field field;
  while (http::next_field(fields, field)) {
    ChecksumKind kind = ChecksumKind::kMd5;
    std::string expected(field.value);
    std::string name(field.name);
    if (http::equals_ignoring_case(field.name, "x-amz-trailer")) {
      name = std::string(field.value);
      expected.clear();
      if (!checksum_kind_of(name, kind)) continue;
    } else if (http::equals_ignoring_case(field.name, "x-goog-hash")) {
      expected = crc32c_of_hash(field.value);
      if (expected.empty()) continue;
      name = "x-amz-checksum-crc32c";
      kind = ChecksumKind::kCrc32c;
    } else if (http::equals_ignoring_case(field.name, "content-md5")) {
      const auto raw = from_base64(expected);
      if (!raw || raw->size() != std::tuple_size_v<Md5Digest>) return S3Code::kInvalidDigest;
      if (target.compute_md5) {
        // The MD5 that the ETag needs does for this check as well: hashing twice would double the
        // CPU.
        expected_md5_ = std::move(expected);
        continue;
      }
    } else if (!checksum_kind_of(field.name, kind)) {
      continue;
    }
    const S3Code code =
        add_check(kind, {std::move(name), std::move(expected), false, S3Code::kBadDigest, nullptr});
    if (code != S3Code::kNone) return code;
  }
  return S3Code::kNone;
}

S3Code BodyReader::open(const http::RequestHead& head, const Target& target) {
  target_ = target;
  is_http_chunked_ = head.is_chunked;
  left_bytes_ = head.content_length.value_or(0);
  done_ = !is_http_chunked_ && left_bytes_ == 0;
  if (!target.keep) return S3Code::kNone;
  if (!head.is_chunked && !head.content_length && target.fd >= 0) {
    fail(S3Code::kMissingContentLength);
    return error_;
  }
  // Not Content-Encoding: aws-chunked, which some send without chunks and S3 only drops.
  is_aws_chunked_ = head.header("x-amz-content-sha256").starts_with("STREAMING-");
  if (is_aws_chunked_) {
    if (const auto value = head.header("x-amz-decoded-content-length"); !value.empty()) {
      expected_payload_bytes_ = parse_decimal<std::uint64_t>(value);
      if (!expected_payload_bytes_) fail(S3Code::kInvalidArgument);
    }
  }
  const std::uint64_t announced_bytes =
      is_aws_chunked_ ? expected_payload_bytes_.value_or(0) : left_bytes_;
  if (target.fd >= 0 && announced_bytes > target.max_file_bytes) fail(S3Code::kEntityTooLarge);
  if (error_ == S3Code::kNone) fail(add_header_checks(head, target));
  return error_;
}

void BodyReader::take_payload(std::string_view bytes) {
  payload_bytes_ += bytes.size();
  if (!target_.keep || error_ != S3Code::kNone) return;
  if (md5_sum_) md5_sum_->update(bytes);
  for (Check& check : checks_) check.checksum->update(bytes);
  if (target_.fd >= 0) {
    if (payload_bytes_ > target_.max_file_bytes) {
      fail(S3Code::kEntityTooLarge);
    } else if (!write_all(target_.fd, bytes)) {
      fail(S3Code::kInternalError);
    }
  } else if (memory_.size() + bytes.size() > target_.max_memory_bytes) {
    fail(S3Code::kMaxMessageLengthExceeded);
  } else {
    memory_ += bytes;
  }
}

void BodyReader::take_unchunked(std::string_view bytes) {
  if (!is_aws_chunked_) return take_payload(bytes);
  while (!bytes.empty() && error_ == S3Code::kNone && !aws_chunks_.done()) {
    std::string_view payload;
    const auto used = aws_chunks_.next(bytes, payload);
    if (!used) return fail(S3Code::kIncompleteBody);
    take_payload(payload);
    bytes.remove_prefix(*used);
  }
}

std::size_t BodyReader::feed_framed(std::string_view bytes) {
  if (!is_http_chunked_) {
    const std::size_t used =
        static_cast<std::size_t>(std::min<std::uint64_t>(left_bytes_, bytes.size()));
    take_unchunked(bytes.substr(0, used));
    left_bytes_ -= used;
    done_ = left_bytes_ == 0;
    return used;
  }
  std::size_t total = 0;
  while (total < bytes.size() && !http_chunks_.done()) {
    std::string_view payload;
    const auto used = http_chunks_.next(bytes.substr(total), payload);
    if (!used) {
      fail(S3Code::kIncompleteBody);
      is_framed_ = false;
      done_ = true;
      return bytes.size();
    }
    take_unchunked(payload);
    total += *used;
  }
  done_ = http_chunks_.done();
  return total;
}

std::size_t BodyReader::feed(std::string_view bytes) { return done_ ? 0 : feed_framed(bytes); }

void BodyReader::read_trailer(std::string_view trailer) {
  http::Field field;
  while (http::next_field(trailer, field)) {
    for (Check& check : checks_) {
      if (check.expected.empty() && http::equals_ignoring_case(check.name, field.name)) {
        check.expected = std::string(field.value);
      }
    }
  }
}

S3Code BodyReader::finish() {
  if (!target_.keep || error_ != S3Code::kNone) return error_;
  if (is_aws_chunked_) {
    if (!aws_chunks_.done() || expected_payload_bytes_.value_or(payload_bytes_) != payload_bytes_) {
      fail(S3Code::kIncompleteBody);
      return error_;
    }
    read_trailer(aws_chunks_.trailer());
  } else if (is_http_chunked_) {
    read_trailer(http_chunks_.trailer());
  }
  for (Check& check : checks_) {
    const std::string raw = check.checksum->finish();
    const std::string actual =
        check.is_hex ? to_hex(std::as_bytes(std::span(raw))) : to_base64(raw);
    if (actual != check.expected) {
      fail(check.failure);
    } else if (is_checksum_field(check.name)) {
      if (stored_sum_.first.empty()) stored_sum_ = {to_lower(check.name), actual};
      echo_ += check.name + ": " + actual + "\r\n";
    }
  }
  if (md5_sum_) fail(finish_md5());
  return error_;
}

S3Code BodyReader::finish_md5() {
  const std::string raw = md5_sum_->finish();
  if (!expected_md5_.empty() && to_base64(raw) != expected_md5_) return S3Code::kBadDigest;
  std::memcpy(md5_.data(), raw.data(), md5_.size());
  return S3Code::kNone;
}

}  // namespace headrace::sim
