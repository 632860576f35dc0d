// Listings and buckets.
#include <algorithm>
#include <span>

#include "base/random.h"
#include "base/strings.h"
#include "http/date.h"
#include "http/fields.h"
#include "http/uri.h"
#include "sim/checksum.h"
#include "sim/google_face.h"
#include "sim/service.h"

namespace headrace::sim {
namespace {

constexpr std::uint32_t kMaxPageCount = 1000;  // S3's

std::string iso_date(std::int64_t seconds) {
  return http::format_iso_date(std::chrono::sys_seconds(std::chrono::seconds(seconds)));
}

/// A continuation token: 'p' or 'k' (common prefix or key), then what the last page ended with, in
/// hex.
std::string token_of(const Listing& page) {
  return (page.last_is_prefix ? "p" : "k") + to_hex(std::as_bytes(std::span(page.last)));
}

bool read_token(std::string_view token, ListQuery& query) {
  if (token.size() < 2 || token.size() % 2 == 0 || (token[0] != 'p' && token[0] != 'k'))
    return false;
  std::string escaped;
  for (std::size_t i = 1; i < token.size(); i += 2) {
    escaped += '%';
    escaped += token.substr(i, 2);
  }
  auto text = http::decode(escaped);
  if (!text) return false;
  query.after = *text;
  if (token[0] == 'p') query.skip_prefix = *std::move(text);
  return true;
}

class ListingXml {
 public:
  ListingXml(const Target& target, bool is_v2, bool is_google)
      : is_encoded_(target.parameter("encoding-type") == "url"),
        is_v2_(is_v2),
        is_google_(is_google),
        target_(target) {}

  std::string write(const ListQuery& query, const Listing& page) {
    out_ = kXmlHead;
    out_ += "<ListBucketResult";
    out_ += kXmlNamespace;
    append_xml_element("Name", target_.bucket, out_);
    element("Prefix", query.prefix);
    if (!query.delimiter.empty()) element("Delimiter", query.delimiter);
    append_xml_element("MaxKeys", std::to_string(query.max_count), out_);
    if (is_encoded_) append_xml_element("EncodingType", "url", out_);
    append_xml_element("IsTruncated", page.is_truncated ? "true" : "false", out_);
    write_position(page);
    for (const ListedObject& object : page.objects) write_object(object);
    for (const std::string& prefix : page.common_prefixes) {
      out_ += "<CommonPrefixes>";
      element("Prefix", prefix);
      out_ += "</CommonPrefixes>";
    }
    out_ += "</ListBucketResult>";
    return std::move(out_);
  }

 private:
  void element(std::string_view name, std::string_view text) {
    append_xml_element(
        name, is_encoded_ ? http::encode(text, http::Slash::kKeep) : std::string(text), out_);
  }

  void write_position(const Listing& page) {
    if (!is_v2_) {
      element("Marker", target_.parameter("marker").value_or(""));
      if (page.is_truncated) element("NextMarker", page.last);
      return;
    }
    append_xml_element("KeyCount",
                       std::to_string(page.objects.size() + page.common_prefixes.size()), out_);
    if (const auto token = target_.parameter("continuation-token")) {
      append_xml_element("ContinuationToken", *token, out_);
    }
    if (const auto after = target_.parameter("start-after")) element("StartAfter", *after);
    if (page.is_truncated) append_xml_element("NextContinuationToken", token_of(page), out_);
  }

  void write_object(const ListedObject& object) {
    out_ += "<Contents>";
    element("Key", object.key);
    append_xml_element("LastModified", iso_date(object.info.modified_ns / 1'000'000'000), out_);
    append_xml_element("ETag", etag_of(object.info), out_);
    append_xml_element("Size", std::to_string(object.info.size_bytes), out_);
    append_xml_element("StorageClass", "STANDARD", out_);
    if (is_google_)
      append_xml_element("Generation", std::to_string(generation_of(object.info)), out_);
    out_ += "</Contents>";
  }

  const bool is_encoded_;
  const bool is_v2_;
  const bool is_google_;
  const Target& target_;
  std::string out_;
};

/// The same order for the same page and seed; where the page ends does not change.
void shuffle(std::uint64_t seed, Listing& page) {
  Random random(seed ^ hash_text(page.last));
  for (std::size_t i = page.objects.size(); i > 1; --i) {
    std::swap(page.objects[i - 1], page.objects[random.next() % i]);
  }
}

}  // namespace

S3Code Service::list_bucket(Exchange& exchange) {
  if (const S3Code code = require_bucket(exchange); code != S3Code::kNone) return code;
  const Target& target = exchange.target;
  const bool is_v2 = target.parameter("list-type") == "2";
  ListQuery query;
  query.prefix = target.parameter("prefix").value_or("");
  query.delimiter = target.parameter("delimiter").value_or("");
  query.after = target.parameter(is_v2 ? "start-after" : "marker").value_or("");
  if (const auto text = target.parameter("max-keys")) {
    const auto count = parse_decimal<std::uint64_t>(*text);
    if (!count) return S3Code::kInvalidArgument;
    query.max_count = static_cast<std::uint32_t>(std::min<std::uint64_t>(*count, kMaxPageCount));
  }
  if (const auto token = target.parameter("continuation-token"); is_v2 && token) {
    if (!read_token(*token, query)) return S3Code::kInvalidArgument;
  }
  // A V1 marker that is a common prefix stands for all that it covers.
  if (!is_v2 && !query.delimiter.empty() && query.after.ends_with(query.delimiter)) {
    query.skip_prefix = query.after;
  }
  Listing page = list_objects(shared_.storage, shared_.folders, target.bucket, query);
  if (current_.behaviour.shuffle_listings > 0 || is_directory_bucket(target.bucket)) {
    shuffle(current_.seed, page);
  }
  set_xml(ListingXml(target, is_v2, exchange.is_google).write(query, page), exchange.response);
  return S3Code::kNone;
}

S3Code Service::list_buckets(Exchange& exchange) {
  std::string out(kXmlHead);
  out += "<ListAllMyBucketsResult";
  out += kXmlNamespace;
  out += "<Owner><ID>headrace</ID></Owner><Buckets>";
  for (const BucketInfo& bucket : shared_.storage.list_buckets()) {
    out += "<Bucket>";
    append_xml_element("Name", bucket.name, out);
    append_xml_element("CreationDate", iso_date(bucket.created_s), out);
    out += "</Bucket>";
  }
  out += "</Buckets></ListAllMyBucketsResult>";
  set_xml(std::move(out), exchange.response);
  return S3Code::kNone;
}

S3Code Service::create_bucket(Exchange& exchange) {
  const S3Code code = shared_.storage.create_bucket(exchange.target.bucket);
  if (code == S3Code::kNone) {
    exchange.response.fields += "Location: /" + exchange.target.bucket + "\r\n";
  }
  return code;
}

S3Code Service::create_session(Exchange& exchange) {
  if (const S3Code code = require_bucket(exchange); code != S3Code::kNone) return code;
  const std::string& bucket = exchange.target.bucket;
  if (!is_directory_bucket(bucket)) return S3Code::kInvalidRequest;
  const auto life =
      std::chrono::milliseconds(static_cast<std::int64_t>(current_.behaviour.session_ms));
  auto credentials =
      shared_.sessions.create(bucket, shared_.options.region, shared_.clock.now() + life);
  if (!credentials) return S3Code::kInternalError;
  const auto expires = wall_now() + std::chrono::floor<std::chrono::seconds>(life);
  std::string out(kXmlHead);
  out += "<CreateSessionResult";
  out += kXmlNamespace;
  out += "<Credentials>";
  append_xml_element("SessionToken", credentials->session_token, out);
  append_xml_element("SecretAccessKey", credentials->secret_access_key, out);
  append_xml_element("AccessKeyId", credentials->access_key_id, out);
  append_xml_element("Expiration", http::format_iso_date(expires), out);
  out += "</Credentials></CreateSessionResult>";
  set_xml(std::move(out), exchange.response);
  return S3Code::kNone;
}

S3Code Service::get_location(Exchange& exchange) {
  if (const S3Code code = require_bucket(exchange); code != S3Code::kNone) return code;
  std::string out(kXmlHead);
  out += "<LocationConstraint";
  out += kXmlNamespace;
  // us-east-1 is written as nothing, for reasons of age.
  if (shared_.options.region != "us-east-1") append_xml_escaped(shared_.options.region, out);
  out += "</LocationConstraint>";
  set_xml(std::move(out), exchange.response);
  return S3Code::kNone;
}

}  // namespace headrace::sim
