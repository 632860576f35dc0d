#include "sim/service.h"

#include <algorithm>

#include "base/random.h"
#include "headrace/clock.h"
#include "http/date.h"
#include "http/fields.h"

namespace headrace::sim {
namespace {

// File descriptors a thread may keep open; the usual soft limit of a process is 1,024.
constexpr std::size_t kOpenFiles = 200;
// Bodies kept in memory: 1,000 keys to delete, or 10,000 parts to complete, with room.
constexpr std::size_t kMaxDocumentBytes = 8 << 20;

/// What S3's codes of verify_sigv4() are here.
S3Code code_of(std::string_view name) {
  for (std::size_t i = 1; i < static_cast<std::size_t>(S3Code::kCount); ++i) {
    if (error_text(static_cast<S3Code>(i)).name == name) return static_cast<S3Code>(i);
  }
  return S3Code::kAccessDenied;
}

bool stores_body(Kind kind) { return kind == Kind::kPutObject || kind == Kind::kUploadPart; }

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
  refusal_detail.clear();
  fate = Fate();
  file.discard();
  body.reset();
  response.status = 200;
  response.fields.clear();
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
  if (!options.require_signature) return S3Code::kNone;
  auth::Verdict verdict = shared_.verifier->verify(head, system_clock().wall_now());
  if (!verdict.ok()) {
    exchange.refusal_detail = std::move(verdict.message);
    return code_of(verdict.error_code);
  }
  if (!options.session_token.empty() && shared_.is_token_expired.load(std::memory_order_relaxed)) {
    return S3Code::kExpiredToken;
  }
  payload_hash = std::move(verdict.payload_hash);
  return S3Code::kNone;
}

void Service::draw(const http::RequestHead& head, Exchange& exchange) {
  if (current_.is_perfect) return;
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
  const bool is_get = target.kind == Kind::kGetObject;
  exchange.fate = draw_fate(current_.behaviour, current_.seed, identity,
                            shared_.ordinals.next(identity), is_get);
}

void Service::open_body(const http::RequestHead& head, const std::string& payload_hash,
                        Exchange& exchange) {
  const Kind kind = exchange.target.kind;
  const bool has_body = head.is_chunked || head.content_length.value_or(0) > 0;
  if (!has_body && !stores_body(kind)) return;
  BodyReader::Target target;
  target.max_memory_bytes = kMaxDocumentBytes;
  target.check_fields = kind != Kind::kCompleteUpload;
  target.keep = exchange.refusal == S3Code::kNone;
  if (is_payload_hash(payload_hash)) target.expected_sha256 = payload_hash;
  if (target.keep && stores_body(kind)) {
    exchange.refusal = shared_.storage.create_temporary(exchange.target.bucket, exchange.file);
    target.fd = exchange.file.fd();
    target.keep = exchange.refusal == S3Code::kNone;
  }
  exchange.body = std::make_unique<BodyReader>();
  const S3Code code = exchange.body->open(head, target);
  if (exchange.refusal == S3Code::kNone) exchange.refusal = code;
}

void Service::begin(const http::RequestHead& head, bool is_loopback, Exchange& exchange) {
  exchange.clear();
  if (const std::uint32_t version = shared_.behaviour.version(); version != current_version_) {
    current_ = shared_.behaviour.get();
    current_version_ = version;
  }
  exchange.request_id = hex16(mix64(++request_count_ + reinterpret_cast<std::uintptr_t>(this)));
  exchange.refusal = parse_target(head, exchange.target);
  std::string payload_hash;
  if (exchange.target.kind == Kind::kAdmin) {
    if (!is_loopback) exchange.refusal = S3Code::kAccessDenied;
  } else if (const S3Code code = authenticate(head, exchange, payload_hash);
             code != S3Code::kNone) {
    exchange.refusal = code;
  } else {
    draw(head, exchange);
  }
  if (exchange.refusal == S3Code::kNone && exchange.fate.answer != Fate::Answer::kServe) {
    exchange.refusal = exchange.fate.answer == Fate::Answer::kSlowDown ? S3Code::kSlowDown
                                                                       : S3Code::kInternalError;
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
      return delete_object(exchange);
    case Kind::kDeleteObjects:
      return delete_objects(exchange);
    case Kind::kListObjects:
      return list_bucket(exchange);
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
    case Kind::kCreateUpload:
      return create_upload(exchange);
    case Kind::kUploadPart:
    case Kind::kCopyPart:
      return upload_part(head, exchange);
    case Kind::kCompleteUpload:
      return complete_upload(head, exchange);
    case Kind::kAbortUpload:
      return abort_upload(exchange);
    case Kind::kListParts:
      return list_parts(exchange);
    case Kind::kAdmin:
      answer_admin(head, exchange);
      return S3Code::kNone;
    case Kind::kInvalid:
    case Kind::kCount:
      break;
  }
  return S3Code::kMethodNotAllowed;
}

void Service::answer(const http::RequestHead& head, Exchange& exchange) {
  Response& response = exchange.response;
  S3Code code = exchange.refusal;
  if (exchange.body) {
    if (code == S3Code::kNone) code = exchange.body->finish();
    if (!exchange.body->is_framed()) response.close = true;
  }
  if (code == S3Code::kNone) code = dispatch(head, exchange);
  if (code != S3Code::kNone) {
    response.status = error_text(code).status;
    response.file.reset();
    const std::string_view detail =
        code == exchange.refusal ? exchange.refusal_detail : std::string_view();
    set_xml(error_document(code, head.path, exchange.request_id, detail), response);
  }
  if (head.method == "HEAD" || response.status == 204 || response.status == 304) {
    response.has_body = false;
  }
  if (!response.file) response.length_bytes = response.body.size();
  if (!head.keep_alive) response.close = true;
}

void Service::append_head(const Exchange& exchange, std::chrono::sys_seconds now,
                          std::string& out) {
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
  if (response.file) out += response.file->fields;
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

void Service::finished(const Exchange& exchange, std::uint64_t sent_bytes, bool was_cut) {
  if (exchange.target.kind == Kind::kAdmin) return;
  Served served;
  served.kind = exchange.target.kind;
  served.status = exchange.response.status;
  served.sent_bytes = sent_bytes;
  served.received_bytes = exchange.body ? exchange.body->payload_bytes() : 0;
  served.was_cut = was_cut;
  served.was_delayed = exchange.fate.is_slow_first_byte;
  served.bucket = exchange.target.bucket;
  served.key = exchange.target.key;
  stats_.record(served);
}

}  // namespace headrace::sim
