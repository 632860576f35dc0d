// HeadBuilder writes fields in lower case and in order and signs them where they stand, so what is
// signed is what is sent; the calls here must keep the order.
//
// - Keys that Azure would change on the way are refused before anything is sent: another blob
//   would be read or, worse, written.
// - A redirect is refused: Azure sends none, and a signed request goes nowhere else.
// - Values from outside become header fields only without control characters, so none can begin
//   another field.
// - The token that was sent last is what a refusal is told of (see gcs_protocol.cc).
//
// The CRC-64 is Azure's own integrity check: sent with every body, asked for with every range of
// up to 4 MiB, which is the most the service computes ("Get Blob").
#include "store/azure/azure_protocol.h"

#include <algorithm>
#include <array>
#include <vector>

#include "base/base64.h"
#include "base/crc64nvme.h"
#include "base/endian.h"
#include "http/date.h"
#include "http/range.h"
#include "http/uri.h"
#include "store/azure/azure_errors.h"
#include "store/azure/head_builder.h"
#include "store/effective_settings.h"

namespace headrace::azure {
namespace {

// "Naming and referencing containers, blobs, and metadata".
constexpr std::size_t kMaxKeyCharacters = 1024;
/// Longest range whose CRC-64 the service computes ("Get Blob").
constexpr std::uint64_t kMaxChecksumRangeBytes = std::uint64_t{4} << 20;

/// An HTTP date without a heap string.
struct HttpDate {
  std::array<char, 29> text;
  explicit HttpDate(std::chrono::sys_seconds now) noexcept {
    http::write_http_date(now, text.data());
  }
  std::string_view view() const noexcept { return std::string_view(text.data(), text.size()); }
};

/// A CRC-64 as x-ms-content-crc64 has it: base64 of eight bytes, the least significant first. The
/// polynomial is that of CRC-64/NVME.
struct Crc64Text {
  std::array<char, 12> text;
  explicit Crc64Text(std::span<const std::byte> bytes) {
    std::array<std::byte, 8> sum;
    store_le(sum.data(), crc64nvme(bytes));
    encode_base64(sum, text);
  }
  std::string_view view() const noexcept { return std::string_view(text.data(), text.size()); }
};

std::span<const std::byte> payload_of(const Request& request) noexcept {
  if (request.op == Op::kGet || request.length_bytes == 0) return {};
  return request.slab.bytes().subspan(request.slab_offset_bytes,
                                      static_cast<std::size_t>(request.length_bytes));
}

std::span<const std::byte> as_bytes(std::string_view text) noexcept {
  return std::as_bytes(std::span(text.data(), text.size()));
}

/// A value that would end its header line early or forge another.
bool is_unsafe_value(std::string_view value) noexcept {
  return std::any_of(value.begin(), value.end(), [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return (byte < 0x20 && c != '\t') || byte == 0x7f;
  });
}

std::size_t character_count(std::string_view utf8) noexcept {
  return static_cast<std::size_t>(std::count_if(utf8.begin(), utf8.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xc0) != 0x80;  // not a continuation byte
  }));
}

/// True when a part of the key ends with a dot: Azure drops such dots, and URL parsers on the way
/// resolve "." and "..", so that the request would be for another blob.
bool has_final_dot(std::string_view key) noexcept {
  return key.ends_with('.') || key.find("./") != std::string_view::npos;
}

Status refuse_redirect(const HeadContext& context) {
  if (context.redirect == nullptr) return {};
  return Status(Code::kUnsupported,
                "the answer is a redirect, which Azure does not send; check the endpoint");
}

}  // namespace

Status AzureProtocol::check_key(std::string_view key) const {
  if (key.empty()) return Status(Code::kInvalidArgument, "the key is empty");
  // Bytes first, since they are never fewer than characters: most keys need no counting.
  if (config_.prefix.size() + key.size() > kMaxKeyCharacters) {
    const std::size_t count = character_count(config_.prefix) + character_count(key);
    if (count > kMaxKeyCharacters) {
      return Status(Code::kInvalidArgument, "the key has " + std::to_string(count) +
                                                " characters with the store's prefix; Azure "
                                                "allows 1024");
    }
  }
  if (key.find('\0') != std::string_view::npos)
    return Status(Code::kInvalidArgument, "the key has a NUL character");
  if (has_final_dot(key))
    return Status(Code::kInvalidArgument,
                  "the key has a part that ends with a dot, which Azure "
                  "does not keep");
  if (key.find('\\') != std::string_view::npos)
    return Status(Code::kInvalidArgument, "the key has a backslash, which Azure stores as a slash");
  return {};
}

std::string AzureProtocol::blob_url(std::string_view key) const {
  std::string url = config_.origin + config_.container_path + "/";
  http::append_encoded(config_.prefix, http::Slash::kKeep, url);
  http::append_encoded(key, http::Slash::kKeep, url);
  return url;
}

Result<std::shared_ptr<const auth::Token>> AzureProtocol::token_at(std::chrono::sys_seconds now) {
  if (!config_.credentials.tokens) return std::shared_ptr<const auth::Token>();
  HEADRACE_TRY_ASSIGN(auto token, config_.credentials.tokens->current(now));
  MutexLock lock(mutex_);
  if (last_token_ != token) last_token_ = token;
  return token;
}

void AzureProtocol::finish(HeadBuilder& head, const auth::Token* token,
                           std::string_view unsigned_fields) {
  head.finish(config_.credentials.signer.get(), token, unsigned_fields);
}

Status AzureProtocol::check_upload(std::string_view upload_id) const {
  if (!is_upload_id(upload_id)) {
    return Status(Code::kNotFound, "no such upload: \"" + std::string(upload_id.substr(0, 64)) +
                                       "\" is not the id of an upload to Azure");
  }
  if (aborted_uploads_.contains(upload_id))
    return Status(Code::kNotFound, "no such upload: it was aborted");
  return {};
}

Result<vendor::FieldList> AzureProtocol::fields_of_write(const ObjectSettings* given) const {
  if (given == nullptr && config_.settings.empty()) return vendor::FieldList();
  ObjectSettings room;
  const ObjectSettings& settings = effective_settings(config_.settings, given, room);
  HEADRACE_TRY(check_azure_settings(settings));
  return setting_fields(settings);
}

Status AzureProtocol::append_head(const Request& request, const HeadContext& context,
                                  std::string& out) {
  HEADRACE_TRY(refuse_redirect(context));
  HEADRACE_TRY(check_key(request.key));
  if (is_unsafe_value(request.etag))
    return Status(Code::kInvalidArgument, "the ETag has a control character");
  if (request.op == Op::kPutPart) HEADRACE_TRY(check_upload(request.upload_id));
  vendor::FieldList settings;
  if (request.op == Op::kPut) {
    HEADRACE_TRY_ASSIGN(settings, fields_of_write(request.settings));
  }
  HEADRACE_TRY_ASSIGN(const auto token, token_at(context.wall_now));

  HeadBuilder head(vendor::method_of(request.op), out);
  head.merge(settings);
  out.append(config_.container_path).push_back('/');
  http::append_encoded(config_.prefix, http::Slash::kKeep, out);
  http::append_encoded(request.key, http::Slash::kKeep, out);
  BlockId block;
  if (request.op == Op::kPutPart) {
    block = block_id(request.upload_id, request.part_number);
    head.query("blockid", std::string_view(block.data(), block.size()));
    head.query("comp", "block");
  } else if (!request.version_id.empty()) {
    head.query("versionid", request.version_id);
  }
  head.finish_request_line(config_.credentials.sas);

  const bool is_put = request.op != Op::kGet;
  const HttpDate date(context.wall_now);
  if (is_put) head.decimal_field("content-length", request.length_bytes);
  head.field("host", config_.host_field);
  if (!request.etag.empty() && request.op != Op::kPutPart) head.field("if-match", request.etag);
  if (request.if_absent && request.op == Op::kPut) head.field("if-none-match", "*");
  if (request.op == Op::kPut) head.field("x-ms-blob-type", "BlockBlob");
  if (is_put && config_.sends_checksums)
    head.field("x-ms-content-crc64", Crc64Text(payload_of(request)).view());
  head.field("x-ms-date", date.view());
  if (!is_put) {
    head.begin_field("x-ms-range");
    http::append_range(request.offset_bytes, request.length_bytes, out);
    head.end_field();
    if (config_.asks_checksums && request.length_bytes <= kMaxChecksumRangeBytes)
      head.field("x-ms-range-get-content-crc64", "true");
  }
  head.field("x-ms-version", kApiVersion);
  finish(head, token.get(), vendor::kUserAgent);
  return {};
}

Status AzureProtocol::append_head(const HttpCall& call, const HeadContext& context,
                                  std::string& out) {
  HEADRACE_TRY(refuse_redirect(context));
  HEADRACE_TRY_ASSIGN(const auto token, token_at(context.wall_now));
  HeadBuilder head(call.method, out);
  out.append(config_.container_path);
  if (!call.path.empty()) out.push_back('/');
  http::append_encoded(call.path, http::Slash::kKeep, out);
  auto query = call.query;
  std::sort(query.begin(), query.end());
  for (const auto& [name, value] : query) head.query(name, value);
  head.finish_request_line(config_.credentials.sas);

  const HttpDate date(context.wall_now);
  auto fields = call.headers;
  fields.emplace_back("host", config_.host_field);
  fields.emplace_back("x-ms-date", date.view());
  fields.emplace_back("x-ms-version", kApiVersion);
  if (call.method == "PUT" || call.method == "POST") {
    fields.emplace_back("content-length", std::to_string(call.body.size()));
    if (call.method == "PUT" && !call.body.empty() && config_.sends_checksums)
      fields.emplace_back("x-ms-content-crc64", Crc64Text(as_bytes(call.body)).view());
  }
  std::sort(fields.begin(), fields.end(),
            [](const auto& a, const auto& b) { return comes_before(a.first, b.first); });
  for (const auto& [name, value] : fields) {
    if (is_unsafe_value(value))
      return Status(Code::kInvalidArgument, "the header " + name + " has a control character");
    head.field(name, value);
  }
  finish(head, token.get(), vendor::kUserAgent);
  return {};
}

Status AzureProtocol::append_batch_delete(std::string_view key, std::chrono::sys_seconds now,
                                          std::string& out) {
  HEADRACE_TRY_ASSIGN(const auto token, token_at(now));
  HeadBuilder head("DELETE", out);
  out.append(config_.container_path).push_back('/');
  http::append_encoded(full_key(key), http::Slash::kKeep, out);
  head.finish_request_line(config_.credentials.sas);
  const HttpDate date(now);
  head.field("content-length", "0");
  head.field("x-ms-date", date.view());
  finish(head, token.get(), {});
  return {};
}

Status AzureProtocol::error_from(std::string_view what, const http::ResponseHead& head,
                                 std::string_view body) {
  Status status = error_status(what, head, body, config_.credentials.source);
  if (!config_.credentials.tokens || !is_token_refused(error_code_of(head, body), head.status))
    return status;
  std::shared_ptr<const auth::Token> refused;
  {
    MutexLock lock(mutex_);
    refused = last_token_;
  }
  if (refused && config_.credentials.tokens->invalidate(*refused))
    return Status(Code::kUnavailable, std::string(status.message()));
  return status;
}

Checksum AzureProtocol::checksum_of(const Request&, const http::ResponseHead& head) const {
  const std::string_view text = head.header("x-ms-content-crc64");
  std::array<std::byte, 8> sum;
  if (!decode_base64(text, sum)) return {};
  return {ChecksumKind::kCrc64Nvme, load_le<std::uint64_t>(sum.data())};
}

void AzureProtocol::append_checksum(const Request&, const http::ResponseHead& head,
                                    std::string& out) const {
  out.append(head.header("x-ms-content-crc64"));
}

}  // namespace headrace::azure
