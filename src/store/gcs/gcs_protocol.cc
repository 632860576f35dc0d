// Fields are written in lower case and in sorted order, and the signer reads them where they
// stand: what is signed is what is sent. append_field() calls must keep that order. What is not
// signed (length, user agent) comes after the authorization.
//
// The version is the generation, never the ETag: equal bytes written twice have one ETag.
//
// A token that is refused is told to its provider; where a new one is under way the error becomes
// kUnavailable, and the engine tries again with it. last_token_ is only the latest that was sent:
// with two in use at once the wrong one may be told, which costs one renewal too many.
#include "store/gcs/gcs_protocol.h"

#include <algorithm>
#include <array>
#include <vector>

#include "base/strings.h"
#include "http/date.h"
#include "http/fields.h"
#include "http/range.h"
#include "http/uri.h"
#include "store/effective_settings.h"
#include "store/gcs/gcs_errors.h"
#include "store/gcs/gcs_hash.h"
#include "store/vendor/checksum_text.h"
#include "store/vendor/head_fields.h"
#include "store/vendor/xml_api.h"

namespace headrace::gcs {
namespace {

constexpr std::size_t kMaxFields = vendor::HeadFields::kMaxFields;

std::span<const std::byte> payload_of(const Request& request) noexcept {
  if (request.op == Op::kGet || request.length_bytes == 0) return {};
  return request.slab.bytes().subspan(request.slab_offset_bytes,
                                      static_cast<std::size_t>(request.length_bytes));
}

/// As in x-goog-hash.
std::string sum_of(const Request& request) {
  std::string text;
  vendor::append_checksum_text(ChecksumKind::kCrc32c,
                               vendor::checksum_value(ChecksumKind::kCrc32c, payload_of(request)),
                               text);
  return text;
}

void append_field(std::string_view name, std::string_view value, std::string& out) {
  out.append(name).append(": ").append(value).append("\r\n");
}

/// The fields of the head that starts at `start`, as they stand in `out`.
std::size_t find_fields(std::string_view head, std::array<http::Field, kMaxFields>& fields) {
  head.remove_prefix(std::min(head.find("\r\n") + 2, head.size()));
  std::size_t count = 0;
  while (count < kMaxFields && http::next_field(head, fields[count])) ++count;
  return count;
}

}  // namespace

Status check_field_value(std::string_view name, std::string_view value) {
  const bool is_unsafe = std::any_of(value.begin(), value.end(), [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return (byte < 0x20 && c != '\t') || byte == 0x7f;
  });
  if (!is_unsafe) return {};
  return Status(Code::kInvalidArgument, std::string(name) + " has a control character");
}

Status check_version_id(std::string_view version_id) {
  if (version_id.empty() || is_generation(version_id)) return {};
  return Status(Code::kInvalidArgument, "version_id \"" + std::string(version_id.substr(0, 64)) +
                                            "\" is no generation, which is a number");
}

bool is_generation(std::string_view text) noexcept {
  const auto value = parse_decimal<std::uint64_t>(text);
  return value && *value > 0;
}

GcsProtocol::GcsProtocol(GcsConfig config)
    : ConfiguredProtocol(std::move(config)),
      signer_(config_.hmac ? std::make_unique<auth::GoogleHmacSigner>(*config_.hmac) : nullptr) {}

Result<GcsProtocol::Access> GcsProtocol::access(auth::WallTime now) {
  Access access;
  if (config_.tokens == nullptr) return access;
  HEADRACE_TRY_ASSIGN(access.token, config_.tokens->current(now));
  // relaxed: only spares the lock; last_token_ itself is read under it.
  if (last_raw_.load(std::memory_order_relaxed) != access.token.get()) {
    const MutexLock lock(mutex_);
    last_token_ = access.token;
    last_raw_.store(access.token.get(), std::memory_order_relaxed);
  }
  return access;
}

void GcsProtocol::append_target(std::string_view key, std::string& out) const {
  out.append(config_.base_path).append("/").append(config_.bucket);
  if (key.empty()) return;
  out.push_back('/');
  http::append_encoded(key, http::Slash::kKeep, out);
}

void GcsProtocol::append_tail(const Access& access, const HeadContext& context,
                              std::string_view method, std::size_t start,
                              std::optional<std::uint64_t> body_bytes, std::string& out) {
  if (signer_ != nullptr) {
    // append_authorization() below reads views into `out`: no growth meanwhile. The names of the
    // fields are part of it.
    const std::size_t most = 1024 + out.size() - start;
    if (out.capacity() - out.size() < most) out.reserve(out.size() + most);
    const std::string_view head = std::string_view(out).substr(start);
    std::string_view target = head.substr(method.size() + 1);
    target = target.substr(0, target.find(' '));
    const std::size_t question = std::min(target.find('?'), target.size());
    std::array<http::Field, kMaxFields> fields;
    const std::size_t count = find_fields(head, fields);
    out.append("authorization: ");
    signer_->append_authorization(
        {method, target.substr(0, question), target.substr(std::min(question + 1, target.size())),
         std::span(fields).first(count), auth::kUnsignedPayload},
        context.wall_now, out);
    out.append("\r\n");
  } else if (access.token != nullptr) {
    out.append("authorization: Bearer ").append(access.token->text).append("\r\n");
  }
  if (body_bytes) {
    out.append("content-length: ");
    http::append_decimal(*body_bytes, out);
    out.append("\r\n");
  }
  out.append(vendor::kUserAgent).append("\r\n");
}

Result<vendor::FieldList> GcsProtocol::fields_of_write(const ObjectSettings* given) const {
  if (given == nullptr && config_.settings.empty()) return vendor::FieldList();
  ObjectSettings room;
  const ObjectSettings& settings = effective_settings(config_.settings, given, room);
  HEADRACE_TRY(vendor::check_settings(settings, kSettingNames));
  return vendor::setting_fields(settings, kSettingNames);
}

void GcsProtocol::append_request_line(const Request& request, std::string& out) const {
  out.append(request.op == Op::kGet ? "GET " : "PUT ").append(config_.base_path);
  out.append("/").append(config_.bucket).push_back('/');
  http::append_encoded(config_.prefix, http::Slash::kKeep, out);
  http::append_encoded(request.key, http::Slash::kKeep, out);
  if (request.op == Op::kPutPart) {
    out.append("?partNumber=");
    http::append_decimal(request.part_number, out);
    out.append("&uploadId=");
    http::append_encoded(request.upload_id, http::Slash::kEscape, out);
  } else if (!request.version_id.empty()) {
    out.append("?generation=").append(request.version_id);
  }
  out.append(" HTTP/1.1\r\n");
}

Status GcsProtocol::check_request(const Request& request) const {
  const std::size_t key_bytes = config_.prefix.size() + request.key.size();
  if (request.key.empty() || key_bytes > 1024 ||
      request.key.find_first_of(std::string_view("\0\r\n", 3)) != std::string_view::npos ||
      request.key == "." || request.key == "..") {
    // Only keys that look odd are put together and checked in full: this is on the way of every
    // read.
    HEADRACE_TRY(check_gcs_key(request.key.empty() ? std::string() : full_key(request.key)));
  }
  if (!request.etag.empty() && request.op != Op::kPutPart && !is_generation(request.etag))
    return Status(Code::kChanged, "the version that is named is no generation of this store");
  return check_version_id(request.version_id);
}

Status GcsProtocol::append_head(const Request& request, const HeadContext& context,
                                std::string& out) {
  HEADRACE_TRY(check_request(request));
  HEADRACE_TRY_ASSIGN(const Access access, this->access(context.wall_now));
  const bool is_put = request.op != Op::kGet;
  vendor::FieldList settings;
  if (request.op == Op::kPut) {
    HEADRACE_TRY_ASSIGN(settings, fields_of_write(request.settings));
  }
  const std::size_t start = out.size();
  append_request_line(request, out);
  auto to_merge = std::span<const std::pair<std::string, std::string>>(settings);
  const auto field = [&](std::string_view name, std::string_view value) {
    for (; !to_merge.empty() && to_merge.front().first < name; to_merge = to_merge.subspan(1))
      append_field(to_merge.front().first, to_merge.front().second, out);
    if (!value.empty()) append_field(name, value, out);
  };
  // As stored: else Google unpacks what was stored compressed, and ignores ranges.
  if (!is_put) field("accept-encoding", "gzip");
  field("host", config_.host_field);
  if (!is_put) {
    out.append("range: ");
    http::append_range(request.offset_bytes, request.length_bytes, out);
    out.append("\r\n");
  }
  if (signer_ != nullptr) {
    field("x-goog-content-sha256", auth::kUnsignedPayload);
    char stamp[16];
    http::write_amz_date(context.wall_now, stamp);
    field("x-goog-date", {stamp, sizeof(stamp)});
  }
  if (is_put && config_.sends_checksum) field("x-goog-hash", "crc32c=" + sum_of(request));
  if (!request.etag.empty() && request.op != Op::kPutPart) {
    field("x-goog-if-generation-match", request.etag);
  } else if (request.if_absent && request.op == Op::kPut) {
    field("x-goog-if-generation-match", "0");
  }
  if (!config_.user_project.empty()) field("x-goog-user-project", config_.user_project);
  field("~", {});  // what is left of the settings
  append_tail(access, context, is_put ? "PUT" : "GET", start,
              is_put ? std::optional<std::uint64_t>(request.length_bytes) : std::nullopt, out);
  return {};
}

Status GcsProtocol::append_head(const HttpCall& call, const HeadContext& context,
                                std::string& out) {
  HEADRACE_TRY_ASSIGN(const Access access, this->access(context.wall_now));
  const std::size_t start = out.size();
  out.append(call.method).push_back(' ');
  append_target(call.path, out);
  std::vector<std::pair<std::string, std::string>> query;
  for (const auto& [name, value] : call.query) {
    query.emplace_back(http::encode(name, http::Slash::kEscape),
                       http::encode(value, http::Slash::kEscape));
  }
  std::sort(query.begin(), query.end());
  char separator = '?';
  for (const auto& [name, value] : query) {
    out.push_back(separator);
    out.append(name).append("=").append(value);
    separator = '&';
  }
  out.append(" HTTP/1.1\r\n");

  auto fields = call.headers;
  fields.emplace_back("host", config_.host_field);
  if (call.method == "HEAD") fields.emplace_back("accept-encoding", "gzip");
  if (signer_ != nullptr) {
    char stamp[16];
    http::write_amz_date(context.wall_now, stamp);
    fields.emplace_back("x-goog-content-sha256", auth::kUnsignedPayload);
    fields.emplace_back("x-goog-date", std::string(stamp, sizeof(stamp)));
  }
  if (!config_.user_project.empty())
    fields.emplace_back("x-goog-user-project", config_.user_project);
  std::sort(fields.begin(), fields.end());
  for (const auto& [name, value] : fields) {
    HEADRACE_TRY(check_field_value("the header " + name, value));
    append_field(name, value, out);
  }
  const bool has_body = call.method == "PUT" || call.method == "POST";
  append_tail(access, context, call.method, start,
              has_body ? std::optional<std::uint64_t>(call.body.size()) : std::nullopt, out);
  return {};
}

Status GcsProtocol::error_from(std::string_view what, const http::ResponseHead& head,
                               std::string_view body) {
  Status status = error_status(what, head, body, config_.credentials_source);
  if (config_.tokens == nullptr || !is_token_refused(head, body)) return status;
  std::shared_ptr<const auth::Token> refused;
  {
    const MutexLock lock(mutex_);
    refused = last_token_;
  }
  if (refused != nullptr && config_.tokens->invalidate(*refused))
    return Status(Code::kUnavailable, std::string(status.message()));
  return status;
}

Status GcsProtocol::check_answer(const HttpCall& call, const HttpAnswer& answer) {
  return vendor::check_error_body(*this, call, answer);
}

Checksum GcsProtocol::checksum_of(const Request& request, const http::ResponseHead& head) const {
  if (!config_.checks_checksum || request.op != Op::kGet) return {};
  const auto size = stored_size_bytes(head);
  // Google has sums of whole objects only.
  const bool is_whole = head.status == 200
                            ? head.content_length == size
                            : head.status == 206 && head.content_range &&
                                  head.content_range->first == 0 && head.content_range->total &&
                                  head.content_range->last + 1 == *head.content_range->total;
  return is_whole ? object_checksum_of(request, head) : Checksum();
}

Checksum GcsProtocol::object_checksum_of(const Request& request,
                                         const http::ResponseHead& head) const {
  if (!config_.checks_checksum || request.op != Op::kGet) return {};
  // Unpacked on the way: the sum is of other bytes.
  const std::string_view stored = head.header("x-goog-stored-content-encoding");
  const bool is_unpacked = !stored.empty() && !http::equals_ignoring_case(stored, "identity") &&
                           head.header("content-encoding").empty();
  const auto crc = is_unpacked ? std::nullopt : stored_crc32c(head);
  if (!crc) return {};
  return {ChecksumKind::kCrc32c, *crc};
}

std::string_view GcsProtocol::version_of(const Request& request,
                                         const http::ResponseHead& head) const {
  if (request.op == Op::kPutPart) return head.etag;
  return head.header("x-goog-generation");
}

void GcsProtocol::append_checksum(const Request& request, const http::ResponseHead& /*head*/,
                                  std::string& out) const {
  if (config_.sends_checksum && request.op == Op::kPutPart) out.append(sum_of(request));
}

EndpointRules GcsProtocol::rules() const {
  // Google, "Request rate and access distribution guidelines": a bucket starts at about 5,000 reads
  // and 1,000 writes per second; ramp up by no more than doubling every 20 minutes.
  return {5000, 1000, std::chrono::minutes(20)};
}

Result<std::string> GcsProtocol::presign(const PresignRequest& request, auth::WallTime now) const {
  HEADRACE_TRY(check_gcs_key(request.key.empty() ? request.key : full_key(request.key)));
  HEADRACE_TRY(vendor::check_presign(request, vendor::kLongestPresigned));
  HEADRACE_TRY(check_version_id(request.version_id));
  if (!config_.url_signer) {
    return Status(Code::kUnsupported, "these credentials cannot sign URLs (" +
                                          config_.credentials_source +
                                          "); use a service account's key file or an HMAC key");
  }
  std::string path;
  append_target(full_key(request.key), path);
  const http::Field host{"host", config_.host_field};
  const std::string version =
      request.version_id.empty() ? std::string() : "generation=" + request.version_id;
  HEADRACE_TRY_ASSIGN(
      const std::string query,
      auth::google_signed_query(
          {vendor::method_of(request.op), path, version, {&host, 1}, auth::kUnsignedPayload},
          *config_.url_signer, now, request.lifetime));
  return std::string(config_.endpoint.use_tls ? "https://" : "http://") + config_.host_field +
         path + "?" + query;
}

}  // namespace headrace::gcs
