// Calls that are no transfers. What a retry after a lost answer would get wrong is arranged so
// that it does not: deleting what is not there is a success, completing an upload is in
// s3_uploads.cc.
//
// Directory buckets (S3 Express) differ: prefixes end at a slash, so a page may hold more than was
// asked for and is filtered here; and they list in no order.
//
// Batches of deletes fall back to single ones for stores that have none, and it is remembered;
// keys that XML cannot hold are always deleted singly. Single keys that failed in a batch by what
// may pass are tried again alone, as the engine sees a batch as one request.
#include "store/s3/s3_control.h"

#include <openssl/evp.h>

#include <algorithm>
#include <array>
#include <unordered_map>

#include "http/date.h"
#include "http/uri.h"
#include "store/list_pager.h"
#include "store/named_version.h"
#include "store/s3/s3_checksum.h"
#include "store/s3/s3_xml.h"
#include "store/vendor/error_table.h"
#include "store/vendor/xml.h"

namespace headrace::s3 {
namespace {

constexpr std::size_t kMostKeysInBatch = 1000;  // S3 API reference, DeleteObjects

StoreTraits traits_of(const S3Config& config) {
  StoreTraits traits;
  traits.lists_in_order = !config.is_express;
  traits.can_start_after = !config.is_express;
  traits.min_part_bytes = std::uint64_t{5} << 20;
  // No range has a sum unless it is a part of an upload; a HEAD tells that of all of them.
  traits.object_sums = config.verify_checksums ? ObjectSums::kHead : ObjectSums::kNotNeeded;
  traits.checks_bodies = config.verify_checksums;
  return traits;
}

/// Base64 of the MD5; empty when this OpenSSL has none.
std::string content_md5(std::string_view body) {
  std::array<unsigned char, 16> digest;
  if (EVP_Digest(body.data(), body.size(), digest.data(), nullptr, EVP_md5(), nullptr) != 1)
    return {};
  std::array<unsigned char, 25> text;
  const int size = EVP_EncodeBlock(text.data(), digest.data(), digest.size());
  return std::string(reinterpret_cast<const char*>(text.data()), static_cast<std::size_t>(size));
}

/// The part of a prefix that directory buckets can list by: up to its last slash.
std::string directory_of(const std::string& prefix) {
  return prefix.substr(0, prefix.rfind('/') + 1);
}

/// The version that is meant, where one is named.
void add_version(const CallOptions& call, HttpCall& http) {
  if (!call.version_id.empty()) http.query.emplace_back("versionId", call.version_id);
}

void keep_only(const std::string& prefix, ListPage& page) {
  std::erase_if(page.objects, [&](const ObjectInfo& o) { return !o.key.starts_with(prefix); });
  std::erase_if(page.common_prefixes, [&](const std::string& p) { return !p.starts_with(prefix); });
}

}  // namespace

Result<ObjectInfo> object_info(const std::string& key, const HttpAnswer& answer) {
  http::ResponseHead head;
  HEADRACE_TRY_ASSIGN(const std::size_t head_bytes, http::parse_response_head(answer.head, head));
  if (head_bytes == 0 || !head.content_length)
    return Status(Code::kCorrupt, "the answer does not say how long the object is");
  ObjectInfo info;
  info.key = key;
  info.size_bytes = *head.content_length;
  info.etag = vendor::with_quotes(head.etag);
  if (const auto modified = http::parse_http_date(head.header("last-modified"))) {
    info.modified_unix_s = modified->time_since_epoch().count();
  }
  info.details = object_details(head);
  return info;
}

S3Control::S3Control(std::shared_ptr<S3Protocol> protocol, std::shared_ptr<TransferEngine> engine)
    : protocol_(std::move(protocol)),
      engine_(std::move(engine)),
      traits_(traits_of(protocol_->config())) {}

std::string S3Control::url_of(std::string_view key) const {
  return protocol_->config().root_url + "/" + std::string(key);
}

Result<HttpCall> S3Control::object_call(const char* method, const std::string& key) const {
  return vendor::object_call(*protocol_, method, key, url_of(key));
}

Result<ObjectInfo> S3Control::head(const std::string& key, const CallOptions& call) {
  HEADRACE_TRY_ASSIGN(HttpCall http, object_call("HEAD", key));
  add_version(call, http);
  return engine_->call(http, call, [&](const HttpAnswer& answer) -> Result<ObjectInfo> {
    HEADRACE_TRY_ASSIGN(ObjectInfo info, object_info(key, answer));
    HEADRACE_TRY(check_named_version(info.details.get(), call.version_id));
    return info;
  });
}

Status S3Control::check_version(const std::string& key, const CallOptions& call) {
  HEADRACE_TRY_ASSIGN(HttpCall http, object_call("HEAD", key));
  add_version(call, http);
  const auto info = engine_->call(
      http, call, [&key](const HttpAnswer& answer) { return object_info(key, answer); });
  if (!info) return {};
  return check_named_version((*info).details.get(), call.version_id).annotate(http.what);
}

Result<ListPage> S3Control::list(const ListRequest& request, const CallOptions& call) {
  const S3Config& config = protocol_->config();
  const std::string what =
      "LIST " + (request.prefix.empty() ? config.root_url : url_of(request.prefix));
  HEADRACE_TRY(check_page_size(request, what));
  if (config.is_express && !request.start_after.empty()) {
    return Status(Code::kUnsupported, what + ": directory buckets have no order to start in");
  }
  if (config.is_express && !request.delimiter.empty() && request.delimiter != "/") {
    return Status(Code::kUnsupported, what + ": directory buckets know no delimiter but \"/\"");
  }
  const std::string asked_prefix =
      config.is_express ? directory_of(request.prefix) : request.prefix;
  HttpCall http;
  http.what = what;
  http.query = {{"list-type", "2"},
                {"encoding-type", "url"},
                {"max-keys", std::to_string(request.page_size)},
                {"prefix", protocol_->full_key(asked_prefix)}};
  if (!request.delimiter.empty()) http.query.emplace_back("delimiter", request.delimiter);
  if (!request.continuation.empty()) {
    http.query.emplace_back("continuation-token", request.continuation);
  } else if (!request.start_after.empty()) {
    http.query.emplace_back("start-after", protocol_->full_key(request.start_after));
  }
  HEADRACE_TRY_ASSIGN(ListPage page, engine_->call(http, call, [&](const HttpAnswer& answer) {
    return next_page(parse_list(answer.body, config.prefix), request);
  }));
  if (asked_prefix != request.prefix) keep_only(request.prefix, page);
  return page;
}

Status S3Control::remove(const std::string& key, const CallOptions& call) {
  HEADRACE_TRY_ASSIGN(HttpCall http, object_call("DELETE", key));
  add_version(call, http);
  if (!call.version_id.empty()) HEADRACE_TRY(check_version(key, call));
  auto answer = engine_->call(http, call);
  return answer ? Status() : vendor::without_missing(std::move(answer).error(), "NoSuchBucket");
}

std::vector<Status> S3Control::remove_many(std::span<const std::string> keys,
                                           const CallOptions& call) {
  if (!call.version_id.empty()) return remove_each(keys, call);
  std::vector<Status> results(keys.size());
  std::vector<std::string> batch;
  std::vector<std::size_t> places;
  const auto send = [&] {
    std::vector<Status> outcome(batch.size());
    Status status = remove_batch(batch, outcome, call);
    for (std::size_t i = 0; i < batch.size(); ++i) {
      const std::size_t place = places[i];
      if (status.code() == Code::kUnsupported || is_retryable(outcome[i].code())) {
        results[place] = remove(keys[place], call);
      } else {
        results[place] = status.ok() ? std::move(outcome[i])
                                     : Status(status.code(), std::string(status.message()));
      }
    }
    batch.clear();
    places.clear();
  };
  for (std::size_t i = 0; i < keys.size(); ++i) {
    if (Status s = protocol_->check_key(keys[i]); !s.ok()) {
      results[i] = std::move(s).annotate("DELETE " + url_of(keys[i]));
    } else if (!vendor::fits_xml(protocol_->full_key(keys[i])) ||
               has_no_batches_.load(std::memory_order_relaxed)) {
      results[i] = remove(keys[i], call);
    } else {
      batch.push_back(protocol_->full_key(keys[i]));
      places.push_back(i);
      if (batch.size() == kMostKeysInBatch) send();
    }
  }
  if (!batch.empty()) send();
  return results;
}

std::vector<Status> S3Control::remove_each(std::span<const std::string> keys,
                                           const CallOptions& call) {
  std::vector<Status> results;
  for (const std::string& key : keys) results.push_back(remove(key, call));
  return results;
}

Status S3Control::remove_batch(std::span<const std::string> keys, std::span<Status> results,
                               const CallOptions& call) {
  const S3Config& config = protocol_->config();
  HttpCall http;
  http.method = "POST";
  http.what = "DELETE " + std::to_string(keys.size()) + " objects of " + config.root_url;
  http.query = {{"delete", ""}};
  http.body = format_delete(keys);
  http.headers = {{"content-type", "application/xml"}};
  // S3 wants one of the two and directory buckets the second; older stores know only the first.
  std::string sum;
  vendor::append_checksum_text(
      ChecksumKind::kCrc32c,
      vendor::checksum_value(ChecksumKind::kCrc32c, std::as_bytes(std::span(http.body))), sum);
  http.headers.emplace_back(checksum_field(ChecksumKind::kCrc32c), sum);
  const std::string md5 = config.is_express ? std::string() : content_md5(http.body);
  if (!md5.empty()) http.headers.emplace_back("content-md5", md5);
  const auto failures =
      engine_->call(http, call, [](const HttpAnswer& answer) { return parse_delete(answer.body); });
  if (!failures) {
    Status status = failures.error().clone();
    if (status.code() != Code::kUnsupported && status.code() != Code::kInvalidArgument)
      return status;
    has_no_batches_.store(true, std::memory_order_relaxed);
    return Status(Code::kUnsupported, std::string(status.message()));
  }
  // A multimap: the same key may be asked for twice, and both places get its outcome.
  std::unordered_multimap<std::string_view, std::size_t> places;
  for (std::size_t i = 0; i < keys.size(); ++i) places.emplace(keys[i], i);
  for (const DeleteFailure& failure : *failures) {
    if (failure.error.code == "NoSuchKey") continue;
    const auto [first, last] = places.equal_range(failure.key);
    if (first == last) {
      return Status(Code::kCorrupt, http.what + ": the answer names the key \"" + failure.key +
                                        "\", which was not asked for");
    }
    for (auto place = first; place != last; ++place) {
      results[place->second] = code_status(
          "DELETE " + url_of(std::string_view(failure.key).substr(config.prefix.size())),
          failure.error, {config.region, config.credentials_source});
    }
  }
  return {};
}

}  // namespace headrace::s3
