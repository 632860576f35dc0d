// Tokens are good for both of Google's APIs, and only the JSON one has pages: the XML API stops
// after 1,000 buckets and does not say so. HMAC keys are good for the XML API alone; there a full
// answer is an error.
#include "store/gcs/gcs_buckets.h"

#include <nlohmann/json.hpp>
#include <pugixml.hpp>
#include <set>

#include "http/date.h"
#include "http/uri.h"
#include "store/gcs/emulator_protocol.h"
#include "store/gcs/gcs_protocol.h"
#include "store/gcs/gcs_store.h"
#include "store/transfer/transfer_engine.h"
#include "store/vendor/xml.h"

namespace headrace::gcs {
namespace {

constexpr const char* kWhat = "LIST the buckets of gs://";
// Google, "GET Service" of the XML API.
constexpr std::size_t kMostInXml = 1000;

std::int64_t unix_seconds(std::string_view iso_date) {
  const auto time = http::parse_iso_date(iso_date);
  return time ? time->time_since_epoch().count() : 0;
}

std::string text_of(const nlohmann::json& object, const char* name) {
  const auto it = object.find(name);
  return it != object.end() && it->is_string() ? it->get<std::string>() : std::string();
}

Status no_project() {
  return Status(Code::kInvalidArgument,
                std::string(kWhat) +
                    ": of which project? The credentials do not say; set GOOGLE_CLOUD_PROJECT");
}

Result<std::vector<BucketInfo>> list_by_hmac(TransferEngine& engine, const std::string& project,
                                             const CallOptions& call) {
  HttpCall http;
  http.what = kWhat;
  // Without it the key's own default project is meant.
  if (!project.empty()) http.headers = {{"x-goog-project-id", project}};
  return engine.call(http, call,
                     [](const HttpAnswer& answer) { return parse_all_buckets(answer.body); });
}

Result<std::vector<BucketInfo>> list_pages(TransferEngine& engine, HttpCall http,
                                           const CallOptions& call) {
  const http::QueryList query = std::move(http.query);
  std::vector<BucketInfo> buckets;
  std::set<std::string> tokens;
  std::string token;
  do {
    http.query = query;
    if (!token.empty()) http.query.emplace_back("pageToken", token);
    HEADRACE_TRY_ASSIGN(BucketPage page, engine.call(http, call, [](const HttpAnswer& answer) {
      return parse_bucket_page(answer.body);
    }));
    std::move(page.buckets.begin(), page.buckets.end(), std::back_inserter(buckets));
    token = std::move(page.next);
    if (!token.empty() && !tokens.insert(token).second) {
      return Status(Code::kCorrupt,
                    std::string(kWhat) + ": the store continues twice at the same place");
    }
  } while (!token.empty());
  return buckets;
}

}  // namespace

Result<BucketPage> parse_bucket_page(std::string_view body) {
  const auto page = nlohmann::json::parse(body, nullptr, false);
  const bool is_listing = page.is_object() && text_of(page, "kind") == "storage#buckets";
  if (!is_listing) {
    return Status(Code::kCorrupt,
                  "the answer is not a listing of buckets; check that the endpoint is Google Cloud "
                  "Storage");
  }
  BucketPage out;
  out.next = text_of(page, "nextPageToken");
  const auto items = page.find("items");
  if (items == page.end() || !items->is_array()) return out;
  for (const auto& item : *items) {
    BucketInfo bucket;
    bucket.name = item.is_object() ? text_of(item, "name") : std::string();
    if (bucket.name.empty()) return Status(Code::kCorrupt, "listing with a bucket without a name");
    bucket.url = "gs://" + bucket.name;
    // Emulators tell fractions and an offset; whole seconds are enough, and UTC is what Google
    // says.
    bucket.created_unix_s = unix_seconds(text_of(item, "timeCreated").substr(0, 19) + "Z");
    out.buckets.push_back(std::move(bucket));
  }
  return out;
}

Result<std::vector<BucketInfo>> parse_all_buckets(std::string_view body) {
  pugi::xml_document document;
  const auto root = vendor::load_root(body, "ListAllMyBucketsResult", document);
  if (!root) {
    return Status(Code::kCorrupt,
                  "the answer is not a listing of buckets; check that the endpoint is Google Cloud "
                  "Storage");
  }
  std::vector<BucketInfo> buckets;
  for (const pugi::xml_node& node : root.child("Buckets").children("Bucket")) {
    const std::string name = node.child_value("Name");
    buckets.push_back({name, "gs://" + name, unix_seconds(node.child_value("CreationDate"))});
  }
  if (buckets.size() < kMostInXml) return buckets;
  return Status(Code::kUnsupported,
                "with an HMAC key Google tells only the first 1,000 buckets; use a service "
                "account or gcloud's credentials");
}

Result<std::vector<BucketInfo>> list_buckets(const StoreOptions& options,
                                             const Environment& environment,
                                             std::shared_ptr<auth::WebClient> web,
                                             const CallOptions& call) {
  const StoreUrl any{.scheme = "gs", .bucket = "bucket", .path = {}, .root = "gs://"};
  HEADRACE_TRY_ASSIGN(GcsConfig config,
                      resolve_gcs_config(options, any, environment, std::move(web)));
  const std::string project = config.project;
  const bool has_hmac = config.hmac.has_value();
  if (project.empty() && !has_hmac && !config.is_emulator) return no_project();
  HttpCall http;
  http.what = kWhat;
  http.query = {{"project", project}, {"maxResults", "1000"}};
  if (config.is_emulator) {
    http.path = "/storage/v1/b";
    auto protocol = std::make_shared<EmulatorProtocol>(std::move(config), 0);
    HEADRACE_TRY_ASSIGN(auto engine, TransferEngine::create(protocol, options, environment));
    return list_pages(*engine, std::move(http), call);
  }
  // Of the JSON API "storage/v1/b" is the collection of all buckets: a key "v1/b" in "storage".
  config.bucket = has_hmac ? "" : "storage";
  http.path = "v1/b";
  auto protocol = std::make_shared<GcsProtocol>(std::move(config));
  HEADRACE_TRY_ASSIGN(auto engine, TransferEngine::create(protocol, options, environment));
  return has_hmac ? list_by_hmac(*engine, project, call)
                  : list_pages(*engine, std::move(http), call);
}

}  // namespace headrace::gcs
