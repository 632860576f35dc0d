// What is asked in which order, and why. begin() sees the head only: what is refused there is
// refused before a byte of the body is stored, and a client that waits for 100 Continue never
// sends it.
//
// 1. What the request means. 2. Who asks (a wrong signature must not show whether a key exists,
// and must not use up a fault that a test has planned). 3. Whether all of it is known
// (allowed.cc): what would be ignored is refused. 4. Its fate and the address's. 5. The limits of
// request rates.
//
// Invariants:
// - What begin() counts as in progress (ordinals, transfers) release() takes out again, exactly
//   once: the two flags in the exchange say what is to be taken out.
// - answer() runs after the whole body was read and checked; only then may anything change on
//   disk.
// - A fate depends on what the client asks for, not on how it was signed: parameters of signatures
//   and ids of uploads differ from run to run and are left out of the identity.
// - One Service per thread; all that is shared lies in SharedState and has its own locks.
#include "sim/service.h"

#include <algorithm>

#include "base/random.h"
#include "headrace/clock.h"
#include "http/date.h"
#include "http/fields.h"
#include "sim/allowed.h"
#include "sim/google_face.h"

namespace headrace::sim {
namespace {

// File descriptors a thread may keep open; the usual soft limit of a process is 1,024.
constexpr std::size_t kOpenFiles = 200;
// Bodies kept in memory: 1,000 keys to delete, or 10,000 parts to complete, with room.
constexpr std::size_t kMaxDocumentBytes = 8 << 20;
// A form is kept in memory with the file that it holds.
constexpr std::size_t kMaxFormBytes = 64 << 20;

/// What S3's codes of verify_sigv4() are here.
S3Code code_of(std::string_view name) {
  for (std::size_t i = 1; i < static_cast<std::size_t>(S3Code::kCount); ++i) {
    if (error_text(static_cast<S3Code>(i)).name == name) return static_cast<S3Code>(i);
  }
  return S3Code::kAccessDenied;
}

bool stores_body(Kind kind) { return kind == Kind::kPutObject || kind == Kind::kUploadPart; }

Traffic traffic_of(Kind kind) {
  switch (kind) {
    case Kind::kGetObject:
      return Traffic::kGet;
    case Kind::kPutObject:
    case Kind::kPostForm:
    case Kind::kUploadPart:
      return Traffic::kPut;
    case Kind::kCopyObject:
    case Kind::kCopyPart:
    case Kind::kCompleteUpload:
      return Traffic::kCommit;
    default:
      return Traffic::kMetadata;
  }
}

bool is_transfer(Kind kind) { return kind == Kind::kGetObject || stores_body(kind); }

bool is_read(Kind kind) {
  return kind == Kind::kGetObject || kind == Kind::kHeadObject || kind == Kind::kListObjects ||
         kind == Kind::kHeadBucket || kind == Kind::kListParts || kind == Kind::kListBuckets ||
         kind == Kind::kGetLocation || kind == Kind::kListUploads || kind == Kind::kCreateSession ||
         kind == Kind::kListVersions || kind == Kind::kGetVersioning ||
         kind == Kind::kGetAttributes;
}

/// Requests that a redirect sent on carry one, in place of a signature for the other address.
bool has_ticket(const Target& target) {
  return target.parameter(kTicketParameter) == ticket_of(target.bucket, target.key);
}

S3Code refusal_of(Fate::Answer answer) {
  switch (answer) {
    case Fate::Answer::kServe:
    case Fate::Answer::kDrop:  // the connection's affair
      return S3Code::kNone;
    case Fate::Answer::kSlowDown:
      return S3Code::kSlowDown;
    case Fate::Answer::kInternalError:
      return S3Code::kInternalError;
    case Fate::Answer::kTooManyRequests:
      return S3Code::kTooManyRequests;
    case Fate::Answer::kRequestTimeout:
      return S3Code::kRequestTimeout;
  }
  return S3Code::kInternalError;
}

/// The lines that every answer about a version has, less what the fate takes away.
void append_object_fields(const Fate& fate, const OpenFile& file, std::string& out) {
  if (!fate.has_no_etag && !fate.is_changed) {
    out += file.fields;
    return;
  }
  const std::size_t at = file.fields.find("ETag: ");
  const std::size_t end = file.fields.find("\r\n", at) + 2;
  out.append(file.fields, 0, at);
  if (!fate.has_no_etag) out += "ETag: " + other_etag(file.etag) + "\r\n";
  out.append(file.fields, end);
}

bool is_payload_hash(std::string_view text) {
  return text.size() == 64 && std::all_of(text.begin(), text.end(), [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
         });
}

std::string hex16(std::uint64_t value) {
  constexpr char kHex[] = "0123456789ABCDEF";
  std::string out(16, '0');
  for (std::size_t i = 16; i-- > 0; value >>= 4) out[i] = kHex[value & 15];
  return out;
}

}  // namespace

void Exchange::clear() {
  refusal = S3Code::kNone;
  error_detail.clear();
  fate = Fate();
  identity = 0;
  is_tracked = is_transfer = is_repeat = is_duplicate = is_requester_paying = is_google = false;
  part_pacer.reset();
  file.discard();
  body.reset();
  response.status = 200;
  response.fields.clear();
  response.kept_fields.clear();
  response.body.clear();
  response.file.reset();
  response.offset_bytes = response.length_bytes = 0;
  response.is_xml = response.close = false;
  response.has_body = true;
}

void set_xml(std::string document, Response& response) {
  response.body = std::move(document);
  response.is_xml = true;
}

Service::Service(SharedState& shared, ThreadStats& stats)
    : shared_(shared), stats_(stats), files_(kOpenFiles) {}

S3Code Service::authenticate(const http::RequestHead& head, Exchange& exchange,
                             std::string& payload_hash) {
  const SimOptions& options = shared_.options;
  exchange.is_google = is_google_request(head);
  if (exchange.is_google && options.require_signature) {
    const bool is_good = !options.bearer_token.empty() &&
                         bearer_token(head) == options.bearer_token &&
                         !shared_.is_token_expired.load(std::memory_order_relaxed);
    return is_good ? S3Code::kNone : S3Code::kAuthenticationRequired;
  }
  if (!options.require_signature) return S3Code::kNone;
  // A form is signed within: service_form.cc.
  if (exchange.target.kind == Kind::kPostForm) return S3Code::kNone;
  if (wants_redirect(exchange) || has_ticket(exchange.target)) return S3Code::kNone;
  auth::Verdict verdict;
  if (is_directory_bucket(exchange.target.bucket)) {
    S3Code code = S3Code::kNone;
    verdict = verify_session(head, exchange, code);
    if (code != S3Code::kNone) return code;
  } else {
    verdict = shared_.verifier->verify(head, wall_now());
  }
  if (!verdict.ok()) {
    exchange.error_detail = std::move(verdict.message);
    return code_of(verdict.error_code);
  }
  if (!options.session_token.empty() && shared_.is_token_expired.load(std::memory_order_relaxed)) {
    return S3Code::kExpiredToken;
  }
  payload_hash = std::move(verdict.payload_hash);
  return S3Code::kNone;
}

std::chrono::sys_seconds Service::wall_now() const {
  const auto skew =
      std::chrono::milliseconds(static_cast<std::int64_t>(current_.behaviour.clock_skew_ms));
  return shared_.clock.wall_now() + std::chrono::floor<std::chrono::seconds>(skew);
}

auth::Verdict Service::verify_session(const http::RequestHead& head, const Exchange& exchange,
                                      S3Code& code) {
  const Kind kind = exchange.target.kind;
  const std::string_view token = head.header("x-amz-s3session-token");
  const bool is_control = kind == Kind::kCreateSession || kind == Kind::kHeadBucket ||
                          kind == Kind::kCreateBucket || kind == Kind::kDeleteBucket ||
                          kind == Kind::kCopyObject || kind == Kind::kCopyPart;
  if (token.empty()) {
    if (!is_control) code = S3Code::kAccessDenied;
    return shared_.express_verifier->verify(head, wall_now());
  }
  const auto session = shared_.sessions.find(token, exchange.target.bucket);
  if (!session) {
    code = S3Code::kInvalidToken;
    return {};
  }
  if (session->ends_at <= shared_.clock.now()) {
    code = S3Code::kExpiredToken;
    return {};
  }
  return session->verifier->verify(head, wall_now());
}

void Service::take_behaviour() {
  current_version_ = shared_.behaviour.version();
  current_ = shared_.behaviour.get();
}

void Service::draw(const http::RequestHead& head, Exchange& exchange) {
  // A perfect server is measured by benchmarks: no hash, no table.
  if (current_.is_perfect && !shared_.options.count_repeats) return;
  const Target& target = exchange.target;
  std::uint64_t identity = hash_text(head.method);
  identity = hash_text(target.bucket, identity);
  identity = hash_text(target.key, identity);
  identity = hash_text(head.header("range"), identity);
  // Parts and pages differ in their parameters; signatures of presigned requests differ in each
  // run.
  for (const auto& [name, value] : target.query) {
    if (!name.starts_with("X-Amz-") && name != "uploadId") {
      identity = hash_text(value, hash_text(name, identity));
    }
  }
  const OrdinalTable::Before before = shared_.ordinals.begin(identity);
  exchange.identity = identity;
  exchange.is_tracked = true;
  const bool is_get = target.kind == Kind::kGetObject;
  exchange.is_repeat = is_get && before.count > 0;
  exchange.is_duplicate = is_get && before.is_in_flight;
  if (current_.is_perfect) return;
  exchange.fate =
      draw_fate(current_.behaviour, current_.seed, identity, before.count, traffic_of(target.kind));
}

void Service::apply_address(Exchange& exchange) const {
  const SimAddress& address = current_.addresses[exchange.address_index];
  const double us = static_cast<double>(exchange.fate.first_byte_us) * address.slow_factor +
                    address.delay_ms * 1e3;
  exchange.fate.first_byte_us = static_cast<std::uint64_t>(us);
}

void Service::release(Exchange& exchange) {
  if (exchange.is_tracked) shared_.ordinals.end(exchange.identity);
  if (exchange.is_transfer) shared_.transfer_count.fetch_sub(1, std::memory_order_relaxed);
  exchange.is_tracked = exchange.is_transfer = false;
}

void Service::open_body(const http::RequestHead& head, const std::string& payload_hash,
                        Exchange& exchange) {
  const Kind kind = exchange.target.kind;
  const bool has_body = head.is_chunked || head.content_length.value_or(0) > 0;
  if (!has_body && !stores_body(kind)) return;
  BodyReader::Target target;
  target.max_memory_bytes = kMaxDocumentBytes;
  // There the checksum fields speak of the whole object, not of this document.
  target.check_fields = kind != Kind::kCompleteUpload;
  target.keep = exchange.refusal == S3Code::kNone;
  if (is_payload_hash(payload_hash)) target.expected_sha256 = payload_hash;
  target.compute_md5 = stores_body(kind);
  if (!exchange.is_google) target.max_file_bytes = kMaxPutBytes;
  if (kind == Kind::kPostForm) target.max_memory_bytes = kMaxFormBytes;
  if (target.keep && stores_body(kind)) {
    exchange.refusal = shared_.storage.create_temporary(exchange.target.bucket, exchange.file);
    target.fd = exchange.file.fd();
    target.keep = exchange.refusal == S3Code::kNone;
  }
  exchange.body = std::make_unique<BodyReader>();
  const S3Code code = exchange.body->open(head, target);
  if (exchange.refusal == S3Code::kNone) exchange.refusal = code;
}

void Service::begin(const http::RequestHead& head, const Peer& peer, TimePoint now,
                    Exchange& exchange) {
  release(exchange);
  exchange.clear();
  exchange.address_index = peer.address_index;
  refresh();
  exchange.request_id = hex16(mix64(++request_count_ + reinterpret_cast<std::uintptr_t>(this)));
  exchange.refusal = parse_target(head, exchange.target);
  std::string payload_hash;
  if (exchange.target.kind == Kind::kAdmin) {
    if (!peer.is_loopback || is_cross_site(head)) exchange.refusal = S3Code::kAccessDenied;
  } else if (const S3Code code = authenticate(head, exchange, payload_hash);
             code != S3Code::kNone) {
    exchange.refusal = code;
  } else {
    if (exchange.refusal == S3Code::kNone) {
      exchange.refusal = check_allowed(head, exchange.target, exchange.error_detail);
    }
    exchange.is_requester_paying = head.header("x-amz-request-payer") == "requester";
    draw(head, exchange);
    apply_address(exchange);
    if (exchange.refusal == S3Code::kNone) exchange.refusal = refusal_of(exchange.fate.answer);
    if (exchange.refusal == S3Code::kNone && current_.limits_requests &&
        !is_within_limits(exchange, now)) {
      exchange.refusal =
          current_.behaviour.limit_status == 429 ? S3Code::kTooManyRequests : S3Code::kSlowDown;
    }
    if (current_.shares_bandwidth && exchange.refusal == S3Code::kNone &&
        is_transfer(exchange.target.kind)) {
      shared_.transfer_count.fetch_add(1, std::memory_order_relaxed);
      exchange.is_transfer = true;
    }
  }
  open_body(head, payload_hash, exchange);
}

S3Code Service::require_bucket(const Exchange& exchange) const {
  return shared_.storage.bucket_exists(exchange.target.bucket) ? S3Code::kNone
                                                               : S3Code::kNoSuchBucket;
}

S3Code Service::dispatch(const http::RequestHead& head, Exchange& exchange) {
  switch (exchange.target.kind) {
    case Kind::kGetObject:
    case Kind::kHeadObject:
      return read_object(head, exchange);
    case Kind::kPutObject:
      return put_object(head, exchange);
    case Kind::kCopyObject:
      return copy_object(head, exchange);
    case Kind::kDeleteObject:
      return delete_object(head, exchange);
    case Kind::kDeleteObjects:
      return delete_objects(head, exchange);
    case Kind::kListObjects:
      return list_bucket(exchange);
    case Kind::kListVersions:
      return list_versions(exchange);
    case Kind::kListBuckets:
      return list_buckets(exchange);
    case Kind::kHeadBucket:
      exchange.response.fields += "x-amz-bucket-region: " + shared_.options.region + "\r\n";
      return require_bucket(exchange);
    case Kind::kCreateBucket:
      return create_bucket(exchange);
    case Kind::kDeleteBucket:
      exchange.response.status = 204;
      return shared_.storage.delete_bucket(exchange.target.bucket);
    case Kind::kGetLocation:
      return get_location(exchange);
    case Kind::kGetVersioning:
      return get_versioning(exchange);
    case Kind::kGetAttributes:
      return get_attributes(head, exchange);
    case Kind::kPostForm:
      return post_form(head, exchange);
    case Kind::kCreateUpload:
      return create_upload(head, exchange);
    case Kind::kUploadPart:
    case Kind::kCopyPart:
      return upload_part(head, exchange);
    case Kind::kCompleteUpload:
      return complete_upload(head, exchange);
    case Kind::kAbortUpload:
      return abort_upload(exchange);
    case Kind::kListParts:
      return list_parts(exchange);
    case Kind::kListUploads:
      return list_uploads(exchange);
    case Kind::kCreateSession:
      return create_session(exchange);
    case Kind::kAdmin:
      answer_admin(head, exchange);
      return S3Code::kNone;
    case Kind::kInvalid:
    case Kind::kCount:
      break;
  }
  return S3Code::kMethodNotAllowed;
}

S3Code Service::refuse_in_body(const http::RequestHead& head, Exchange& exchange) {
  set_xml(error_document(S3Code::kInternalError, head.path, exchange.request_id),
          exchange.response);
  return S3Code::kNone;
}

void Service::answer(const http::RequestHead& head, Exchange& exchange) {
  Response& response = exchange.response;
  S3Code code = exchange.refusal;
  if (exchange.body) {
    if (code == S3Code::kNone) code = exchange.body->finish();
    if (!exchange.body->is_framed()) response.close = true;
  }
  if (code == S3Code::kNone) {
    code = wants_redirect(exchange) ? redirect(head, exchange) : dispatch(head, exchange);
  }
  if (exchange.is_requester_paying) response.fields += "x-amz-request-charged: requester\r\n";
  if (code != S3Code::kNone) {
    response.status = error_text(code).status;
    response.file.reset();
    set_xml(error_document(code, head.path, exchange.request_id, exchange.error_detail), response);
  }
  if (head.method == "HEAD" || response.status == 204 || response.status == 304) {
    response.has_body = false;
  }
  if (!response.file) response.length_bytes = response.body.size();
  if (!head.keep_alive || code == S3Code::kRequestTimeout) response.close = true;
}

void Service::append_head(const Exchange& exchange, std::chrono::sys_seconds now,
                          std::string& out) {
  // The text of the second is kept: formatting dates would show in the cost of small reads.
  if (now != date_at_) {
    date_at_ = now;
    date_line_ = "\r\nServer: headrace-sim\r\nDate: " + http::format_http_date(now) +
                 "\r\nx-amz-request-id: ";
  }
  const Response& response = exchange.response;
  out += "HTTP/1.1 ";
  out += std::to_string(response.status);
  out += ' ';
  out += reason_phrase(response.status);
  out += date_line_;
  out += exchange.request_id;
  out += "\r\n";
  if (response.file) {
    append_object_fields(exchange.fate, *response.file, out);
    out += response.kept_fields.empty() ? response.file->kept : response.kept_fields;
  }
  if (response.file && exchange.is_google) {
    append_google_fields(response.file->info, response.file->sums, out);
  }
  out += response.fields;
  if (response.is_xml) out += "Content-Type: application/xml\r\n";
  if (response.close) out += "Connection: close\r\n";
  if (response.status != 204 && response.status != 304) {
    // HEAD of an error has no document and nowhere to say how long it would be.
    const bool is_unsent_error = !response.has_body && !response.file && response.status >= 400;
    out += "Content-Length: ";
    out += std::to_string(is_unsent_error ? 0 : response.length_bytes);
    out += "\r\n";
  }
  out += "\r\n";
}

void Service::finished(Exchange& exchange, std::uint64_t sent_bytes, bool was_cut) {
  release(exchange);
  if (exchange.target.kind == Kind::kAdmin) return;
  Served served;
  served.kind = exchange.target.kind;
  served.status = exchange.response.status;
  served.sent_bytes = sent_bytes;
  served.received_bytes = exchange.body ? exchange.body->payload_bytes() : 0;
  served.was_cut = was_cut;
  served.was_delayed = exchange.fate.is_slow_first_byte;
  served.is_requester_paying = exchange.is_requester_paying;
  served.is_repeat = exchange.is_repeat;
  served.is_duplicate = exchange.is_duplicate;
  served.bucket = exchange.target.bucket;
  served.key = exchange.target.key;
  stats_.record(served);
}

}  // namespace headrace::sim
