#include "store/s3/s3_protocol.h"

#include <algorithm>
#include <vector>

#include "base/crc32c.h"
#include "http/range.h"
#include "http/uri.h"
#include "store/s3/head_builder.h"
#include "store/s3/s3_errors.h"
#include "store/s3/s3_xml.h"

namespace headrace::s3 {
namespace {

constexpr std::string_view kUserAgent = "user-agent: headrace/0.1\r\n";
constexpr std::size_t kMaxKeyBytes = 1024;  // S3 API reference, "Object key naming"

std::span<const std::byte> payload_of(const Request& request) noexcept {
  if (request.op == Op::kGet || request.length_bytes == 0) return {};
  return request.slab.bytes().subspan(request.slab_offset_bytes,
                                      static_cast<std::size_t>(request.length_bytes));
}

/// The checksum as S3 wants it: four bytes, most significant first, in base64.
std::string crc32c_base64(std::span<const std::byte> bytes) {
  constexpr char kAlphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  const std::uint64_t bits = std::uint64_t{crc32c(bytes)}
                             << 16;  // 48 bits: six characters and the padding's two
  std::string text;
  for (int shift = 42; shift >= 12; shift -= 6) text.push_back(kAlphabet[(bits >> shift) & 63]);
  return text + "==";
}

/// A value that would end its header line early or forge another.
bool is_unsafe_value(std::string_view value) noexcept {
  return std::any_of(value.begin(), value.end(), [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return (byte < 0x20 && c != '\t') || byte == 0x7f;
  });
}

std::string_view method_of(Op op) noexcept { return op == Op::kGet ? "GET" : "PUT"; }

}  // namespace

Result<std::shared_ptr<S3Protocol>> S3Protocol::create(S3Config config) {
  HEADRACE_TRY_ASSIGN(auto signer, auth::SigV4Signer::create(config.region, "s3"));
  return std::shared_ptr<S3Protocol>(new S3Protocol(std::move(config), std::move(signer)));
}

S3Protocol::S3Protocol(S3Config config, std::unique_ptr<auth::SigV4Signer> signer)
    : config_(std::move(config)), signer_(std::move(signer)) {}

Status S3Protocol::check_key(std::string_view key) const {
  if (key.empty()) return Status(Code::kInvalidArgument, "the key is empty");
  if (config_.prefix.size() + key.size() > kMaxKeyBytes) {
    return Status(Code::kInvalidArgument, "the key has " +
                                              std::to_string(config_.prefix.size() + key.size()) +
                                              " bytes with the store's prefix; S3 allows 1024");
  }
  if (key.find('\0') != std::string_view::npos)
    return Status(Code::kInvalidArgument, "the key has a NUL character");
  return {};
}

Status S3Protocol::append_head(const Request& request, const HeadContext& context,
                               std::string& out) {
  HEADRACE_TRY(check_key(request.key));
  if (is_unsafe_value(request.etag))
    return Status(Code::kInvalidArgument, "the ETag has a control character");
  std::shared_ptr<const auth::Credentials> credentials;
  if (config_.credentials) {
    HEADRACE_TRY_ASSIGN(credentials, config_.credentials->current(context.wall_now));
  }

  HeadBuilder head(method_of(request.op), context.wall_now, out);
  out.append(config_.base_path).push_back('/');
  http::append_encoded(config_.prefix, http::Slash::kKeep, out);
  http::append_encoded(request.key, http::Slash::kKeep, out);
  if (request.op == Op::kPutPart) {
    head.begin_query();
    out.append("partNumber=");
    http::append_decimal(request.part_number, out);
    out.append("&uploadId=");
    http::append_encoded(request.upload_id, http::Slash::kEscape, out);
  }
  head.finish_request_line();

  const bool is_put = request.op != Op::kGet;
  const bool is_hashed = is_put && !config_.endpoint.use_tls && credentials;
  head.field("host", config_.host_field);
  if (!request.etag.empty() && request.op != Op::kPutPart) head.field("if-match", request.etag);
  if (request.if_absent && request.op == Op::kPut) head.field("if-none-match", "*");
  if (request.op == Op::kGet) {
    head.begin_field("range");
    http::append_range(request.offset_bytes, request.length_bytes, out);
    head.end_field();
  }
  if (is_put && !is_hashed) head.field("x-amz-checksum-crc32c", crc32c_base64(payload_of(request)));
  std::string body_hash;  // 64 characters: the one allocation of a PUT, next to hashing its body
  std::string_view payload_hash = auth::kEmptyPayloadHash;
  if (is_put) {
    if (is_hashed) body_hash = auth::sha256_hex(payload_of(request));
    payload_hash = is_hashed ? std::string_view(body_hash) : auth::kUnsignedPayload;
  }
  if (credentials) {
    head.field("x-amz-content-sha256", payload_hash);
    head.field("x-amz-date", head.amz_date());
    if (!credentials->session_token.empty())
      head.field("x-amz-security-token", credentials->session_token);
  }
  if (is_put) {
    out.append("content-length: ");
    http::append_decimal(request.length_bytes, out);
    out.append("\r\n");
  }
  head.finish(credentials ? signer_.get() : nullptr, credentials.get(), payload_hash, kUserAgent);
  return {};
}

Status S3Protocol::append_head(const HttpCall& call, const HeadContext& context, std::string& out) {
  std::shared_ptr<const auth::Credentials> credentials;
  if (config_.credentials) {
    HEADRACE_TRY_ASSIGN(credentials, config_.credentials->current(context.wall_now));
  }
  HeadBuilder head(call.method, context.wall_now, out);
  out.append(config_.base_path);
  // A bucket of its own has a path, and "/bucket/" would be another resource on some servers.
  if (!call.path.empty() || config_.base_path.empty()) out.push_back('/');
  http::append_encoded(call.path, http::Slash::kKeep, out);
  std::vector<std::pair<std::string, std::string>> query;
  for (const auto& [name, value] : call.query) {
    query.emplace_back(http::encode(name, http::Slash::kEscape),
                       http::encode(value, http::Slash::kEscape));
  }
  std::sort(query.begin(), query.end());
  for (std::size_t i = 0; i < query.size(); ++i) {
    if (i == 0) {
      head.begin_query();
    } else {
      out.push_back('&');
    }
    out.append(query[i].first).append("=").append(query[i].second);
  }
  head.finish_request_line();

  const bool has_body = call.method == "PUT" || call.method == "POST";
  const std::string payload_hash = auth::sha256_hex(call.body);
  auto fields = call.headers;
  fields.emplace_back("host", config_.host_field);
  if (credentials) {
    fields.emplace_back("x-amz-content-sha256", payload_hash);
    fields.emplace_back("x-amz-date", head.amz_date());
    if (!credentials->session_token.empty())
      fields.emplace_back("x-amz-security-token", credentials->session_token);
  }
  std::sort(fields.begin(), fields.end());
  for (const auto& [name, value] : fields) {
    if (is_unsafe_value(value))
      return Status(Code::kInvalidArgument, "the header " + name + " has a control character");
    head.field(name, value);
  }
  if (has_body) {
    out.append("content-length: ");
    http::append_decimal(call.body.size(), out);
    out.append("\r\n");
  }
  head.finish(credentials ? signer_.get() : nullptr, credentials.get(), payload_hash, kUserAgent);
  return {};
}

Status S3Protocol::error_from(std::string_view what, const http::ResponseHead& head,
                              std::string_view body) {
  return error_status(what, head, body, {config_.region, config_.credentials_source});
}

Status S3Protocol::check_answer(const HttpCall& call, const HttpAnswer& answer) {
  if (!is_error_body(answer.body)) return {};
  http::ResponseHead head;
  HEADRACE_TRY_ASSIGN(const std::size_t head_bytes, http::parse_response_head(answer.head, head));
  if (head_bytes == 0) head.status = answer.status;
  return error_from(call.what, head, answer.body);
}

std::string S3Protocol::describe(const Request& request) const {
  std::string text(method_of(request.op));
  text.append(" ").append(config_.root_url).append("/").append(request.key);
  if (request.op == Op::kGet) {
    return text + " [" + std::to_string(request.offset_bytes) + ", " +
           std::to_string(request.offset_bytes + request.length_bytes) + ")";
  }
  if (request.op == Op::kPutPart) text += " part " + std::to_string(request.part_number);
  return text + " (" + std::to_string(request.length_bytes) + " bytes)";
}

}  // namespace headrace::s3
