// Listings and buckets.
#include <algorithm>
#include <pugixml.hpp>
#include <span>

#include "base/random.h"
#include "base/strings.h"
#include "http/date.h"
#include "http/fields.h"
#include "http/uri.h"
#include "sim/allowed.h"
#include "sim/checksum.h"
#include "sim/google_face.h"
#include "sim/key_path.h"
#include "sim/service.h"

namespace headrace::sim {
namespace {

constexpr std::uint32_t kMaxPageCount = 1000;  // S3's

std::string iso_date(std::int64_t seconds) {
  return http::format_iso_date(std::chrono::sys_seconds(std::chrono::seconds(seconds)));
}

/// A continuation token: what the last page ended with, in hex.
std::string token_of(const Listing& page) { return to_hex(std::as_bytes(std::span(page.last))); }

bool read_token(std::string_view token, ListQuery& query) {
  if (token.empty()) return false;
  std::string escaped;
  for (std::size_t i = 0; i < token.size(); i += 2) {
    escaped += '%';
    escaped += token.substr(i, 2);
  }
  auto text = http::decode(escaped);
  if (!text) return false;
  query.after = *std::move(text);
  return true;
}

/// The three forms of a listing.
enum class ListForm : std::uint8_t { kV1, kV2, kVersions };

class ListingXml {
 public:
  ListingXml(const Target& target, ListForm form, bool is_google)
      : is_encoded_(target.parameter("encoding-type") == "url"),
        form_(form),
        has_owner_(form != ListForm::kV2 || target.parameter("fetch-owner") == "true"),
        is_google_(is_google),
        target_(target) {}

  std::string write(const ListQuery& query, const Listing& page) {
    const std::string_view root =
        form_ == ListForm::kVersions ? "ListVersionsResult" : "ListBucketResult";
    out_ = kXmlHead;
    out_ += '<';
    out_ += root;
    out_ += kXmlNamespace;
    append_xml_element("Name", target_.bucket, out_);
    // The first version of the call encodes the rest only, and clients decode only the rest.
    if (form_ == ListForm::kV1) {
      append_xml_element("Prefix", query.prefix, out_);
    } else {
      element("Prefix", query.prefix);
    }
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
    out_ += "</" + std::string(root) + ">";
    return std::move(out_);
  }

 private:
  void element(std::string_view name, std::string_view text) {
    append_xml_element(name,
                       is_encoded_ ? http::encode(text, http::Slash::kKeep, http::Plus::kSpace)
                                   : std::string(text),
                       out_);
  }

  void write_position(const Listing& page) {
    if (form_ == ListForm::kVersions) {
      element("KeyMarker", target_.parameter("key-marker").value_or(""));
      element("VersionIdMarker", target_.parameter("version-id-marker").value_or(""));
      if (page.is_truncated) element("NextKeyMarker", page.last);
      if (page.is_truncated && !page.last_is_prefix) element("NextVersionIdMarker", "null");
      return;
    }
    if (form_ == ListForm::kV1) {
      element("Marker", target_.parameter("marker").value_or(""));
      // Without a delimiter it is the last key, and S3 does not tell it.
      if (page.is_truncated && target_.parameter("delimiter")) element("NextMarker", page.last);
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
    const std::string_view name = form_ == ListForm::kVersions ? "Version" : "Contents";
    out_ += '<';
    out_ += name;
    out_ += '>';
    element("Key", object.key);
    if (form_ == ListForm::kVersions) {
      out_ += "<VersionId>null</VersionId><IsLatest>true</IsLatest>";
    }
    append_xml_element("LastModified", iso_date(object.info.modified_ns / 1'000'000'000), out_);
    append_xml_element("ETag", etag_of(object.info), out_);
    append_xml_element("Size", std::to_string(object.info.size_bytes), out_);
    append_xml_element("StorageClass", name_of(object.info.tag.storage_class), out_);
    if (is_google_)
      append_xml_element("Generation", std::to_string(generation_of(object.info)), out_);
    if (has_owner_) out_ += "<Owner>" + std::string(kOwnerElement) + "</Owner>";
    out_ += "</" + std::string(name) + ">";
  }

  const bool is_encoded_;
  const ListForm form_;
  const bool has_owner_;
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

/// What the kinds of listings have in common. Errors: kInvalidArgument.
S3Code read_query(const Target& target, std::string_view position, ListQuery& query) {
  query.prefix = target.parameter("prefix").value_or("");
  query.delimiter = target.parameter("delimiter").value_or("");
  query.after = target.parameter(position).value_or("");
  if (const auto text = target.parameter("max-keys"); text && !text->empty()) {
    const auto count = parse_decimal<std::uint64_t>(*text);
    if (!count) return S3Code::kInvalidArgument;
    query.max_count = static_cast<std::uint32_t>(std::min<std::uint64_t>(*count, kMaxPageCount));
  }
  return S3Code::kNone;
}

}  // namespace

S3Code Service::list_bucket(Exchange& exchange) {
  if (const S3Code code = require_bucket(exchange); code != S3Code::kNone) return code;
  const Target& target = exchange.target;
  const bool is_v2 = target.parameter("list-type") == "2";
  if (is_directory_bucket(target.bucket) && (!is_v2 || !is_directory_list(target))) {
    return S3Code::kInvalidRequest;
  }
  ListQuery query;
  if (const S3Code code = read_query(target, is_v2 ? "start-after" : "marker", query);
      code != S3Code::kNone) {
    return code;
  }
  if (const auto token = target.parameter("continuation-token");
      is_v2 && token && !token->empty()) {
    if (!read_token(*token, query)) return S3Code::kInvalidArgument;
  }
  Listing page = list_objects(shared_.storage, shared_.folders, target.bucket, query);
  // Directory buckets list in no order, and so may other services: clients must not rely on one.
  if (current_.behaviour.shuffle_listings > 0 || is_directory_bucket(target.bucket)) {
    shuffle(current_.seed, page);
  }
  const ListForm form = is_v2 ? ListForm::kV2 : ListForm::kV1;
  set_xml(ListingXml(target, form, exchange.is_google).write(query, page), exchange.response);
  return S3Code::kNone;
}

S3Code Service::list_versions(Exchange& exchange) {
  if (const S3Code code = require_bucket(exchange); code != S3Code::kNone) return code;
  const Target& target = exchange.target;
  ListQuery query;
  if (const S3Code code = read_query(target, "key-marker", query); code != S3Code::kNone) {
    return code;
  }
  const Listing page = list_objects(shared_.storage, shared_.folders, target.bucket, query);
  set_xml(ListingXml(target, ListForm::kVersions, false).write(query, page), exchange.response);
  return S3Code::kNone;
}

S3Code Service::get_versioning(Exchange& exchange) {
  if (const S3Code code = require_bucket(exchange); code != S3Code::kNone) return code;
  std::string out(kXmlHead);
  out += "<VersioningConfiguration";
  out += kXmlNamespace;
  out += "</VersioningConfiguration>";  // never enabled
  set_xml(std::move(out), exchange.response);
  return S3Code::kNone;
}

S3Code Service::list_buckets(Exchange& exchange) {
  const Target& target = exchange.target;
  auto limit =
      parse_decimal<std::uint64_t>(target.parameter("max-buckets").value_or("10000")).value_or(0);
  if (limit < 1 || limit > 10'000) return S3Code::kInvalidArgument;
  const std::string_view after = target.parameter("continuation-token").value_or("");
  const std::string_view prefix = target.parameter("prefix").value_or("");
  const std::string& region = shared_.options.region;
  const bool is_here = target.parameter("bucket-region").value_or(region) == region;
  std::string out(kXmlHead);
  out += "<ListAllMyBucketsResult";
  out += kXmlNamespace;
  out += "<Owner>" + std::string(kOwnerElement) + "</Owner><Buckets>";
  std::string last;
  bool is_truncated = false;
  for (const BucketInfo& bucket : shared_.storage.list_buckets()) {
    if (bucket.name <= after || !bucket.name.starts_with(prefix) || !is_here) continue;
    is_truncated = limit == 0;
    if (is_truncated) break;
    --limit;
    last = bucket.name;
    out += "<Bucket>";
    append_xml_element("Name", bucket.name, out);
    append_xml_element("CreationDate", iso_date(bucket.created_s), out);
    out += "</Bucket>";
  }
  out += "</Buckets>";
  if (is_truncated) append_xml_element("ContinuationToken", last, out);
  out += "</ListAllMyBucketsResult>";
  set_xml(std::move(out), exchange.response);
  return S3Code::kNone;
}

/// CreateBucketConfiguration: where the bucket shall be. Errors: kMalformedXml,
/// kIllegalLocationConstraint, kNotImplemented.
S3Code Service::check_bucket_document(std::string_view text) const {
  if (text.empty()) return S3Code::kNone;
  pugi::xml_document document;
  if (!document.load_buffer(text.data(), text.size())) return S3Code::kMalformedXml;
  for (const pugi::xml_node& child : document.child("CreateBucketConfiguration").children()) {
    const std::string_view name = child.name();
    // Zone and kind of a directory bucket, which its name repeats.
    if (name == "Location" || name == "Bucket") continue;
    if (name != "LocationConstraint") return S3Code::kNotImplemented;
    const std::string_view where = child.child_value();
    if (!where.empty() && where != shared_.options.region) {
      return S3Code::kIllegalLocationConstraint;
    }
  }
  return S3Code::kNone;
}

S3Code Service::create_bucket(Exchange& exchange) {
  const std::string& bucket = exchange.target.bucket;
  if (!is_new_bucket_name(bucket)) return S3Code::kInvalidBucketName;
  const S3Code refused =
      check_bucket_document(exchange.body ? exchange.body->memory() : std::string_view());
  if (refused != S3Code::kNone) return refused;
  S3Code code = shared_.storage.create_bucket(bucket);
  // As S3: only its oldest region takes it for success.
  if (code == S3Code::kBucketAlreadyOwnedByYou && shared_.options.region == "us-east-1") {
    code = S3Code::kNone;
  }
  if (code == S3Code::kNone) exchange.response.fields += "Location: /" + bucket + "\r\n";
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
