// One S3Protocol for all reactors. What it learns while running (a region, that credentials have
// expired, the server's clock) makes an error kUnavailable, and the engine's repetition is signed
// anew with it; what it cannot learn from is final.
//
// - HeadBuilder signs the bytes of the head where they stand; fields must be added in lower case
//   and in order.
// - Signers are never removed: a request on another thread may be using an old one. There are at
//   most kMostRegions.
// - A refusal may speak of credentials that have been replaced meanwhile: for the first kInFlight
//   seconds of new ones it is not held against them.
// - Credentials go to the endpoint's host and below it, to S3's own hosts for AWS, and to hosts
//   that were named; a redirect to any other is refused (docs/design/0032).
// - Bodies are unsigned over TLS only, or to this machine with a checksum: nothing else would
//   protect them on the way.
#include "store/s3/s3_protocol.h"

#include <algorithm>
#include <vector>

#include "http/date.h"
#include "http/range.h"
#include "http/uri.h"
#include "store/effective_settings.h"
#include "store/s3/s3_checksum.h"
#include "store/s3/s3_xml.h"
#include "store/vendor/xml_api.h"

namespace headrace::s3 {
namespace {

constexpr std::size_t kMaxKeyBytes = 1024;  // S3 API reference, "Object key naming"
// S3's least size of a part: no shorter range, but one from the start, can be a part or an object
// of its own, and so come with a checksum of its own.
constexpr std::uint64_t kMinPartBytes = std::uint64_t{5} << 20;
// A refusal within this time of new credentials is taken to speak of the old ones, with which
// requests may still be under way: the default deadline of a request.
constexpr std::chrono::seconds kInFlight{60};
// The same where it is a guess that the refusal is about credentials: if it is wrong, that is how
// long the request is tried again in vain, once in kInFlight.
constexpr std::chrono::seconds kHeadInFlight{2};

std::span<const std::byte> payload_of(const Request& request) noexcept {
  if (request.op == Op::kGet || request.length_bytes == 0) return {};
  return request.slab.bytes().subspan(request.slab_offset_bytes,
                                      static_cast<std::size_t>(request.length_bytes));
}

/// A value that would end its header line early or forge another.
bool is_unsafe_value(std::string_view value) noexcept {
  return std::any_of(value.begin(), value.end(), [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return (byte < 0x20 && c != '\t') || byte == 0x7f;
  });
}

std::string_view token_field(bool is_session) noexcept {
  return is_session ? "x-amz-s3session-token" : "x-amz-security-token";
}

void append_call_line(const HttpCall& call, const S3Config& config, HeadBuilder& head) {
  std::string& out = head.out();
  out.append(config.base_path);
  // A bucket of its own has a path, and "/bucket/" would be another resource on some servers.
  if (!call.path.empty() || config.base_path.empty()) out.push_back('/');
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
}

bool is_aws_host(std::string_view host) noexcept {
  return host.ends_with(".amazonaws.com") || host.ends_with(".amazonaws.com.cn");
}

/// A host of the vendor's S3, and not one of a customer's machines or load balancers, whose names
/// end in amazonaws.com as well: "s3", "s3-fips" and the like, then nothing but where it is.
bool is_aws_s3_host(std::string_view host) noexcept {
  if (!is_aws_host(host)) return false;
  host = host.substr(0, host.rfind(".amazonaws.com"));
  while (!host.empty()) {
    const std::size_t dot = host.rfind('.');
    const std::string_view label = host.substr(dot + 1);  // npos + 1 is 0
    if (label == "s3" || label.starts_with("s3-") || label.starts_with("s3express-")) return true;
    const bool is_region = std::count(label.begin(), label.end(), '-') >= 2 &&
                           label.back() >= '0' && label.back() <= '9';
    const bool is_place = is_region || label == "dualstack" || label == "vpce";
    if (!is_place || dot == std::string_view::npos) return false;
    host = host.substr(0, dot);
  }
  return false;
}

}  // namespace

Result<std::shared_ptr<S3Protocol>> S3Protocol::create(
    S3Config config, std::shared_ptr<auth::CredentialProvider> sessions,
    std::shared_ptr<ServerClock> clock) {
  HEADRACE_TRY_ASSIGN(auto signer, auth::SigV4Signer::create(
                                       config.region, config.is_express ? "s3express" : "s3"));
  if (clock == nullptr) clock = std::make_shared<ServerClock>();
  return std::shared_ptr<S3Protocol>(
      new S3Protocol(std::move(config), std::move(sessions), std::move(clock), std::move(signer)));
}

S3Protocol::S3Protocol(S3Config config, std::shared_ptr<auth::CredentialProvider> sessions,
                       std::shared_ptr<ServerClock> clock,
                       std::unique_ptr<auth::SigV4Signer> signer)
    : ConfiguredProtocol(std::move(config)),
      sessions_(std::move(sessions)),
      clock_(std::move(clock)),
      signer_(signer.get()) {
  signers_.push_back(std::move(signer));
}

Result<S3Protocol::Signature> S3Protocol::signature_at(std::chrono::sys_seconds wall_now,
                                                       bool is_session) {
  Signature signature;
  signature.now = clock_->adjusted(wall_now);
  if (!config_.credentials) return signature;
  signature.is_session = is_session && sessions_ != nullptr;
  auth::CredentialProvider& provider = signature.is_session ? *sessions_ : *config_.credentials;
  HEADRACE_TRY_ASSIGN(signature.credentials, provider.current(signature.now));
  // Acquire: pairs with the release in learn_region().
  signature.signer = signer_.load(std::memory_order_acquire);
  last_used_s_.store(signature.now.time_since_epoch().count(), std::memory_order_relaxed);
  // Relaxed: a stale value costs a look at the guarded one.
  if (in_use_pointer_.load(std::memory_order_relaxed) != signature.credentials.get() &&
      signature.is_session == (sessions_ != nullptr)) {
    note_in_use(signature.credentials, signature.now);
  }
  return signature;
}

void S3Protocol::note_in_use(const std::shared_ptr<const auth::Credentials>& credentials,
                             std::chrono::sys_seconds now) {
  MutexLock lock(mutex_);
  if (in_use_ == credentials) return;
  has_replaced_ = in_use_ != nullptr;
  in_use_ = credentials;
  in_use_since_ = now;
  in_use_pointer_.store(credentials.get(), std::memory_order_relaxed);
}

S3Protocol::Lesson S3Protocol::lesson_of(const http::ResponseHead& head, std::string_view body) {
  const Trouble said = trouble_of(head, body);
  if (said != Trouble::kNone || config_.credentials == nullptr) return {said, false};
  Signed by;
  by.at =
      std::chrono::sys_seconds(std::chrono::seconds(last_used_s_.load(std::memory_order_relaxed)));
  {
    MutexLock lock(mutex_);
    by.is_temporary = in_use_ != nullptr && !in_use_->session_token.empty();
  }
  return {likely_trouble(head, body, by), true};
}

bool S3Protocol::learn_credentials_expired(bool is_guess) {
  std::shared_ptr<const auth::Credentials> refused;
  {
    MutexLock lock(mutex_);
    if (in_use_ == nullptr) return false;
    const std::chrono::sys_seconds now{
        std::chrono::seconds(last_used_s_.load(std::memory_order_relaxed))};
    if (has_replaced_ && now - in_use_since_ < kInFlight)
      return !is_guess || now - in_use_since_ < kHeadInFlight;
    refused = in_use_;
  }
  auth::CredentialProvider& provider = sessions_ != nullptr ? *sessions_ : *config_.credentials;
  return provider.invalidate(*refused);
}

bool S3Protocol::learn_region(const std::string& region) {
  constexpr std::size_t kMostRegions = 3;  // more is no lesson but a quarrel
  if (!config_.is_aws || !is_region_name(region)) return false;
  MutexLock lock(mutex_);
  // Requests that were signed before the lesson come back after it.
  if (signers_.back()->region() == region) return signers_.size() > 1;
  if (signers_.size() >= kMostRegions) return false;
  auto signer = auth::SigV4Signer::create(region, signers_.back()->service());
  if (!signer) return false;
  signers_.push_back(*std::move(signer));
  // Release: pairs with the acquire in signature_at(). The old signer stays for those who use it.
  signer_.store(signers_.back().get(), std::memory_order_release);
  return true;
}

bool S3Protocol::learn(Lesson lesson, const http::ResponseHead& head, std::string_view body) {
  switch (lesson.trouble) {
    case Trouble::kExpiredCredentials:
      return config_.credentials != nullptr && learn_credentials_expired(lesson.is_guess);
    case Trouble::kClock:
      return clock_->learn(http::parse_http_date(head.header("date")));
    case Trouble::kRegion:
      // Another signature helps only where the request has come to the right place.
      return head.status == 400 && learn_region(named_region(head, body));
    case Trouble::kNone:
      break;
  }
  return false;
}

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

Status S3Protocol::check_redirect(const HttpRedirect* redirect, bool is_read) const {
  if (redirect == nullptr) return {};
  const std::string& host = redirect->endpoint.host;
  const bool is_aws = is_aws_host(config_.endpoint.host);
  if (is_aws ? is_aws_s3_host(host) : config_.trusted.is_own(host)) return {};
  if (config_.trusted.is_named(redirect->endpoint)) return {};
  // Without credentials a read gives nothing away.
  if (!is_aws && is_read && config_.credentials == nullptr) return {};
  return Status(Code::kDenied, "redirected to " + redirect->host_field + ", which is not " +
                                   (is_aws ? "Amazon's" : "below the endpoint's host") +
                                   "; credentials and data are not sent there (the option "
                                   "trusted_hosts allows it)");
}

Status S3Protocol::append_request_line(const Request& request, const HttpRedirect* redirect,
                                       HeadBuilder& head) const {
  if (redirect != nullptr) return head.request_line_of(redirect->target);
  std::string& out = head.out();
  out.append(config_.base_path).push_back('/');
  http::append_encoded(config_.prefix, http::Slash::kKeep, out);
  http::append_encoded(request.key, http::Slash::kKeep, out);
  if (request.op == Op::kPutPart) {
    head.begin_query();
    out.append("partNumber=");
    http::append_decimal(request.part_number, out);
    out.append("&uploadId=");
    http::append_encoded(request.upload_id, http::Slash::kEscape, out);
  } else if (!request.version_id.empty()) {
    head.begin_query();
    out.append("versionId=");
    http::append_encoded(request.version_id, http::Slash::kEscape, out);
  }
  head.finish_request_line();
  return {};
}

void S3Protocol::append_auth_fields(const Signature& signature, std::string_view payload_hash,
                                    HeadBuilder& head) const {
  if (signature.signer != nullptr) {
    head.field("x-amz-content-sha256", payload_hash);
    head.field("x-amz-date", head.amz_date());
  }
  if (config_.requester_pays) head.field("x-amz-request-payer", "requester");
  if (signature.signer != nullptr && !signature.credentials->session_token.empty()) {
    head.field(token_field(signature.is_session), signature.credentials->session_token);
  }
}

Result<vendor::FieldList> S3Protocol::fields_of_write(const ObjectSettings* given) const {
  if (given == nullptr && config_.settings.empty()) return vendor::FieldList();
  ObjectSettings room;
  const ObjectSettings& settings = effective_settings(config_.settings, given, room);
  HEADRACE_TRY(check_s3_settings(settings));
  return vendor::setting_fields(settings, kSettingNames);
}

Status S3Protocol::append_head(const Request& request, const HeadContext& context,
                               std::string& out) {
  const bool is_put = request.op == Op::kPut || request.op == Op::kPutPart;
  HEADRACE_TRY(check_key(request.key));
  if (is_unsafe_value(request.etag))
    return Status(Code::kInvalidArgument, "the ETag has a control character");
  HEADRACE_TRY(check_redirect(context.redirect, !is_put));
  HEADRACE_TRY_ASSIGN(const Signature signature, signature_at(context.wall_now, true));

  vendor::FieldList settings;
  if (request.op == Op::kPut) {
    HEADRACE_TRY_ASSIGN(settings, fields_of_write(request.settings));
  }
  HeadBuilder head(vendor::method_of(request.op), signature.now, out);
  HEADRACE_TRY(append_request_line(request, context.redirect, head));
  head.merge(settings);
  const ChecksumKind sum = is_put ? config_.upload_checksum : ChecksumKind::kNone;
  const bool is_safe_unsigned =
      config_.endpoint.use_tls ||
      (config_.is_loopback && sum != ChecksumKind::kNone && context.redirect == nullptr);
  const bool is_hashed = is_put && signature.signer != nullptr && !is_safe_unsigned;
  std::string body_hash;  // 64 characters: the one allocation of a PUT, next to hashing its body
  std::string_view payload_hash = is_put ? auth::kUnsignedPayload : auth::kEmptyPayloadHash;
  if (is_hashed) {
    body_hash = auth::sha256_hex(payload_of(request));
    payload_hash = body_hash;
  }

  head.field("host", context.redirect ? std::string_view(context.redirect->host_field)
                                      : config_.host_field);
  if (!request.etag.empty() && request.op != Op::kPutPart) head.field("if-match", request.etag);
  if (request.if_absent && request.op == Op::kPut) head.field("if-none-match", "*");
  if (sum != ChecksumKind::kNone) {
    head.begin_field(s3::checksum_field(sum));
    vendor::append_checksum_text(sum, vendor::checksum_value(sum, payload_of(request)), out);
    head.end_field();
  }
  if (request.op == Op::kGet) {
    head.begin_field("range");
    http::append_range(request.offset_bytes, request.length_bytes, out);
    head.end_field();
  }
  const bool may_have_sum = request.offset_bytes == 0 || request.length_bytes >= kMinPartBytes;
  if (!is_put && config_.verify_checksums && may_have_sum)
    head.field("x-amz-checksum-mode", "ENABLED");
  append_auth_fields(signature, payload_hash, head);
  head.end_fields();
  if (is_put) {
    out.append("content-length: ");
    http::append_decimal(request.length_bytes, out);
    out.append("\r\n");
  }
  head.finish(signature.signer, signature.credentials.get(), payload_hash, vendor::kUserAgent);
  return {};
}

Status S3Protocol::append_head(const HttpCall& call, const HeadContext& context, std::string& out) {
  HEADRACE_TRY(check_redirect(context.redirect, call.method == "GET" || call.method == "HEAD"));
  // Directory buckets take copies by the account's own credentials only.
  const bool is_copy = std::any_of(call.headers.begin(), call.headers.end(), [](const auto& field) {
    return field.first == "x-amz-copy-source";
  });
  HEADRACE_TRY_ASSIGN(const Signature signature, signature_at(context.wall_now, !is_copy));
  HeadBuilder head(call.method, signature.now, out);
  if (context.redirect != nullptr) {
    HEADRACE_TRY(head.request_line_of(context.redirect->target));
  } else {
    append_call_line(call, config_, head);
  }

  const std::string payload_hash = auth::sha256_hex(call.body);
  auto fields = call.headers;
  fields.emplace_back("host", context.redirect ? context.redirect->host_field : config_.host_field);
  if (config_.requester_pays) fields.emplace_back("x-amz-request-payer", "requester");
  if (signature.signer != nullptr) {
    fields.emplace_back("x-amz-content-sha256", payload_hash);
    fields.emplace_back("x-amz-date", head.amz_date());
    if (!signature.credentials->session_token.empty()) {
      fields.emplace_back(token_field(signature.is_session), signature.credentials->session_token);
    }
  }
  std::sort(fields.begin(), fields.end());
  for (const auto& [name, value] : fields) {
    if (is_unsafe_value(value))
      return Status(Code::kInvalidArgument, "the header " + name + " has a control character");
    head.field(name, value);
  }
  if (call.method == "PUT" || call.method == "POST") {
    out.append("content-length: ");
    http::append_decimal(call.body.size(), out);
    out.append("\r\n");
  }
  head.finish(signature.signer, signature.credentials.get(), payload_hash, vendor::kUserAgent);
  return {};
}

Status S3Protocol::error_from(std::string_view what, const http::ResponseHead& head,
                              std::string_view body) {
  const std::string region = signer_.load(std::memory_order_acquire)->region();
  Status status = error_status(what, head, body, {region, config_.credentials_source});
  const Lesson lesson = lesson_of(head, body);
  if (lesson.trouble == Trouble::kNone || !learn(lesson, head, body)) return status;
  return Status(Code::kUnavailable, std::string(status.message()));
}

Status S3Protocol::check_answer(const HttpCall& call, const HttpAnswer& answer) {
  return vendor::check_error_body(*this, call, answer);
}

Checksum S3Protocol::checksum_of(const Request& request, const http::ResponseHead& head) const {
  if (!config_.verify_checksums || request.op != Op::kGet) return {};
  return announced_checksum(head);
}

Checksum S3Protocol::object_checksum_of(const Request& request,
                                        const http::ResponseHead& head) const {
  if (!config_.verify_checksums || request.op != Op::kHead) return {};
  return object_checksum(head);
}

std::string_view S3Protocol::checksum_field() const noexcept {
  const ChecksumKind kind = config_.upload_checksum;
  return kind == ChecksumKind::kNone ? std::string_view() : s3::checksum_field(kind);
}

void S3Protocol::append_checksum(const Request& /*request*/, const http::ResponseHead& head,
                                 std::string& out) const {
  if (config_.upload_checksum == ChecksumKind::kNone) return;
  out.append(head.header(s3::checksum_field(config_.upload_checksum)));
}

Result<std::string> S3Protocol::presign(const PresignRequest& request,
                                        std::chrono::sys_seconds wall_now) {
  HEADRACE_TRY(check_key(request.key));
  HEADRACE_TRY(vendor::check_presign(request, vendor::kLongestPresigned));
  if (config_.is_express) {
    return Status(Code::kUnsupported,
                  "URLs of directory buckets would end with their session, after five minutes");
  }
  HEADRACE_TRY_ASSIGN(const Signature signature, signature_at(wall_now, false));
  if (signature.signer == nullptr)
    return Status(Code::kUnsupported, "without credentials there is nothing to sign with");
  const std::string path =
      config_.base_path + "/" + http::encode(config_.prefix + request.key, http::Slash::kKeep);
  std::string query;
  if (!request.version_id.empty())
    query = "versionId=" + http::encode(request.version_id, http::Slash::kEscape);
  if (config_.requester_pays)
    query.append(query.empty() ? "" : "&").append("x-amz-request-payer=requester");
  const http::Field host{"host", config_.host_field};
  const auth::CanonicalRequest canonical{vendor::method_of(request.op), path, query,
                                         std::span(&host, 1), auth::kUnsignedPayload};
  return std::string(config_.endpoint.use_tls ? "https://" : "http://") + config_.host_field +
         path + "?" +
         signature.signer->presigned_query(canonical, *signature.credentials, signature.now,
                                           request.lifetime);
}

}  // namespace headrace::s3
