// One driver call is one request, but for uploads: completing one may have had its effect although
// the answer was lost, so it is never repeated blindly. finish_upload() looks for the object
// first, and knows it by the CRC-32C of all parts together, which Google keeps of multipart
// uploads as well.
//
// Pages are followed by their markers, and a marker that comes back is an error: else a broken
// server keeps a listing going for ever.
#include "store/gcs/gcs_store.h"

#include <algorithm>
#include <map>
#include <set>

#include "auth/google_tokens.h"
#include "base/crc32c.h"
#include "http/date.h"
#include "http/uri.h"
#include "store/effective_settings.h"
#include "store/engine_store.h"
#include "store/finish_upload.h"
#include "store/gcs/emulator_store.h"
#include "store/gcs/gcs_errors.h"
#include "store/gcs/gcs_hash.h"
#include "store/gcs/gcs_protocol.h"
#include "store/gcs/gcs_xml.h"
#include "store/list_pager.h"
#include "store/vendor/checksum_text.h"
#include "store/vendor/error_table.h"
#include "store/vendor/xml.h"

namespace headrace::gcs {
namespace {

constexpr std::size_t kKeysPerDelete = 1000;  // Google: "Delete multiple objects"

/// What the head of an answer about a whole object tells.
struct HeadInfo {
  ObjectInfo info;
  std::optional<std::uint64_t> crc;
};

Result<HeadInfo> head_info(const std::string& key, const HttpAnswer& answer) {
  http::ResponseHead head;
  HEADRACE_TRY_ASSIGN(const std::size_t head_bytes, http::parse_response_head(answer.head, head));
  const auto size = stored_size_bytes(head);
  const std::string_view generation = head.header("x-goog-generation");
  if (head_bytes == 0 || !size || generation.empty()) {
    return Status(Code::kCorrupt,
                  "the answer has no length or generation; check that the endpoint is Google Cloud "
                  "Storage");
  }
  HeadInfo out;
  out.info.key = key;
  out.info.size_bytes = *size;
  out.info.etag = generation;
  if (const auto modified = http::parse_http_date(head.header("last-modified")))
    out.info.modified_unix_s = modified->time_since_epoch().count();
  out.info.details = object_details(head);
  out.crc = stored_crc32c(head);
  return out;
}

class GcsStore final : public EngineStore {
 public:
  GcsStore(std::shared_ptr<GcsProtocol> protocol, std::shared_ptr<TransferEngine> engine,
           Clock& clock)
      : EngineStore(std::move(engine)), protocol_(std::move(protocol)), clock_(clock) {
    // Google: "Quotas & limits", objects and multipart uploads.
    traits_.can_start_after = true;
    traits_.object_sums = ObjectSums::kEveryGet;
    traits_.checks_bodies = protocol_->config().checks_checksum;
    traits_.min_part_bytes = std::uint64_t{5} << 20;
    traits_.max_put_bytes = std::uint64_t{5} << 40;
    traits_.max_copy_bytes = std::uint64_t{5} << 40;
  }

  Result<std::unique_ptr<Store>> new_handle() override {
    return std::unique_ptr<Store>(std::make_unique<GcsStore>(protocol_, engine(), clock_));
  }

  Result<ObjectInfo> head(const std::string& key, const CallOptions& call) override {
    HEADRACE_TRY_ASSIGN(HeadInfo info, head_whole(key, call));
    return std::move(info.info);
  }

  Result<ListPage> list(const ListRequest& request, const CallOptions& call) override {
    HttpCall http;
    http.what = "LIST " + (request.prefix.empty() ? url() : object_url(request.prefix));
    HEADRACE_TRY(check_page_size(request, http.what));
    http.query = {{"list-type", "2"},
                  {"encoding-type", "url"},
                  {"max-keys", std::to_string(request.page_size)},
                  {"prefix", protocol_->full_key(request.prefix)}};
    if (!request.delimiter.empty()) http.query.emplace_back("delimiter", request.delimiter);
    if (!request.continuation.empty()) {
      http.query.emplace_back("continuation-token", request.continuation);
    } else if (!request.start_after.empty()) {
      http.query.emplace_back("start-after", protocol_->full_key(request.start_after));
    }
    return engine()->call(http, call, [&](const HttpAnswer& answer) {
      return next_page(parse_list(answer.body, protocol_->config().prefix), request);
    });
  }

  Status remove(const std::string& key, const CallOptions& call) override {
    HEADRACE_TRY_ASSIGN(HttpCall http, object_call("DELETE", key));
    HEADRACE_TRY(add_version(call, http));
    auto answer = engine()->call(http, call);
    return answer ? Status() : vendor::without_missing(std::move(answer).error(), "NoSuchBucket");
  }

  std::vector<Status> remove_many(std::span<const std::string> keys,
                                  const CallOptions& call) override {
    if (!call.version_id.empty()) return Store::remove_many(keys, call);
    std::vector<Status> outcomes(keys.size());
    for (std::size_t begin = 0; begin < keys.size(); begin += kKeysPerDelete) {
      const std::size_t count = std::min(kKeysPerDelete, keys.size() - begin);
      remove_batch(keys.subspan(begin, count), call, std::span(outcomes).subspan(begin, count));
    }
    return outcomes;
  }

  Result<ObjectInfo> copy(const std::string& from_key, const std::string& to_key,
                          const CallOptions& call) override {
    HEADRACE_TRY_ASSIGN(HttpCall http, object_call("PUT", to_key));
    http.what = "COPY " + object_url(from_key) + " to " + object_url(to_key);
    if (Status s = check_gcs_key(protocol_->full_key(from_key)); !s.ok())
      return std::move(s).annotate(http.what);
    http.headers = {{"x-goog-copy-source",
                     "/" + protocol_->config().bucket + "/" +
                         http::encode(protocol_->full_key(from_key), http::Slash::kKeep)}};
    HEADRACE_TRY(check_version_id(call.version_id).annotate(http.what));
    if (!call.version_id.empty())
      http.headers.emplace_back("x-goog-copy-source-generation", call.version_id);
    HEADRACE_TRY(add_settings_of_copy(from_key, call, http));
    // Of a large object to another class all bytes are copied before the answer.
    http.answer_timeout = kCompleteAnswerTime;
    HEADRACE_TRY_ASSIGN(
        const HttpAnswer answer,
        engine()->call(http, {engine()->deadline_of(call, kCompleteTime), call.stop}));
    // The answer has no size.
    return head(to_key, {.deadline = call.deadline, .stop = call.stop});
  }

  Result<std::string> create_upload(const std::string& key, const CallOptions& call) override {
    HEADRACE_TRY_ASSIGN(HttpCall http, object_call("POST", key));
    http.query = {{"uploads", ""}};
    HEADRACE_TRY(add_settings(call.settings, http));
    // A repeated one leaves an empty upload behind, which the bucket's lifecycle rule removes.
    return engine()->call(http, call,
                          [](const HttpAnswer& answer) { return parse_upload_id(answer.body); });
  }

  Result<ObjectInfo> complete_upload(const std::string& key, const std::string& upload_id,
                                     std::span<const UploadedPart> parts,
                                     const CallOptions& call) override {
    HEADRACE_TRY_ASSIGN(HttpCall http, object_call("POST", key));
    http.what = "COMPLETE " + object_url(key);
    if (parts.empty())
      return Status(Code::kInvalidArgument, http.what + ": an upload needs a part");
    http.query = {{"uploadId", upload_id}};
    http.headers = {{"content-type", "application/xml"}};
    http.body = format_complete(parts);
    const auto sum = vendor::combined_checksum(ChecksumKind::kCrc32c, parts);
    http.is_idempotent =
        false;  // the first attempt may have had its effect: we look before the next
    http.answer_timeout = kCompleteAnswerTime;
    UploadEnd end;
    end.what = http.what;
    end.deadline = engine()->deadline_of(call, kCompleteTime);
    std::string generation;
    end.complete = [&](TimePoint deadline) -> Status {
      HEADRACE_TRY_ASSIGN(const HttpAnswer answer, engine()->call(http, {deadline, call.stop}));
      http::ResponseHead head;
      HEADRACE_TRY_ASSIGN(const std::size_t head_bytes,
                          http::parse_response_head(answer.head, head));
      static_cast<void>(head_bytes);
      generation = head.header("x-goog-generation");
      return {};
    };
    end.find = [&](TimePoint deadline) -> Result<std::optional<ObjectInfo>> {
      auto there = head_whole(key, {deadline, call.stop});
      if (!there && there.error().code() != Code::kNotFound) return std::move(there).error();
      if (!there || !sum || there->crc != sum) return std::optional<ObjectInfo>();
      return std::optional<ObjectInfo>(std::move(there->info));
    };
    HEADRACE_TRY_ASSIGN(auto found, finish_upload(end, engine()->clock(), call.stop));
    if (found) return *std::move(found);
    auto whole = head_whole(key, call);
    if (!whole && whole.error().code() == Code::kDenied)
      return written_object(key, parts, std::move(generation));
    HEADRACE_TRY_ASSIGN(HeadInfo there, std::move(whole));
    if (sum && there.crc && *there.crc != *sum) {
      return Status(Code::kCorrupt,
                    http.what +
                        ": the object's CRC32C is not that of the parts that were sent; "
                        "it was replaced meanwhile or damaged");
    }
    return std::move(there.info);
  }

  Status abort_upload(const std::string& key, const std::string& upload_id,
                      const CallOptions& call) override {
    HEADRACE_TRY_ASSIGN(HttpCall http, object_call("DELETE", key));
    http.what = "ABORT " + object_url(key);
    http.query = {{"uploadId", upload_id}};
    auto answer = engine()->call(http, call);
    return answer ? Status() : vendor::without_missing(std::move(answer).error(), "NoSuchBucket");
  }

  Result<std::vector<UploadedPart>> list_parts(const std::string& key, const std::string& upload_id,
                                               const CallOptions& call) override {
    std::vector<UploadedPart> parts;
    std::string marker;
    std::set<std::string> markers;
    do {
      HEADRACE_TRY_ASSIGN(HttpCall http, object_call("GET", key));
      http.what = "LIST PARTS " + object_url(key);
      http.query = {{"uploadId", upload_id}};
      if (!marker.empty()) http.query.emplace_back("part-number-marker", marker);
      const auto read = [&](const HttpAnswer& answer) -> Result<PartPage> {
        auto page = parse_parts(answer.body);
        if (page && !page->next.empty() && markers.contains(page->next))
          return Status(Code::kCorrupt, "the pages do not end");
        return page;
      };
      HEADRACE_TRY_ASSIGN(PartPage page, engine()->call(http, call, read));
      std::move(page.parts.begin(), page.parts.end(), std::back_inserter(parts));
      marker = std::move(page.next);
      markers.insert(marker);
    } while (!marker.empty());
    return parts;
  }

  Result<std::vector<PendingUpload>> list_uploads(const std::string& prefix,
                                                  const CallOptions& call) override {
    std::vector<PendingUpload> uploads;
    std::string key, id;
    std::set<std::pair<std::string, std::string>> markers;
    for (;;) {
      HttpCall http;
      http.what = "LIST UPLOADS " + (prefix.empty() ? url() : object_url(prefix));
      http.query = {
          {"uploads", ""}, {"encoding-type", "url"}, {"prefix", protocol_->full_key(prefix)}};
      if (!key.empty()) http.query.emplace_back("key-marker", key);
      if (!id.empty()) http.query.emplace_back("upload-id-marker", id);
      const auto read = [&](const HttpAnswer& answer) -> Result<vendor::UploadPage> {
        auto page = parse_uploads(answer.body, protocol_->config().prefix);
        if (page && !page->next_key.empty() &&
            markers.contains({page->next_key, page->next_upload_id}))
          return Status(Code::kCorrupt, "the pages do not end");
        return page;
      };
      HEADRACE_TRY_ASSIGN(vendor::UploadPage page, engine()->call(http, call, read));
      std::move(page.uploads.begin(), page.uploads.end(), std::back_inserter(uploads));
      if (page.next_key.empty()) break;
      key = std::move(page.next_key);
      id = std::move(page.next_upload_id);
      markers.emplace(key, id);
    }
    return uploads;
  }

  Result<std::string> presign(const PresignRequest& request) override {
    auto signed_url = protocol_->presign(request, clock_.wall_now());
    if (!signed_url)
      return std::move(signed_url).error().annotate("PRESIGN " + object_url(request.key));
    return signed_url;
  }

  const StoreTraits& traits() const noexcept override { return traits_; }
  const ObjectSettings& settings() const noexcept override { return protocol_->config().settings; }
  Status check_settings(const ObjectSettings& settings) const override {
    return vendor::check_settings(settings, kSettingNames);
  }
  const std::string& url() const noexcept override { return protocol_->config().root_url; }

 private:
  Result<HttpCall> object_call(const char* method, const std::string& key) const {
    HttpCall http;
    http.method = method;
    http.what = std::string(method) + " " + object_url(key);
    if (Status s = check_gcs_key(key.empty() ? key : protocol_->full_key(key)); !s.ok())
      return std::move(s).annotate(http.what);
    http.path = protocol_->full_key(key);
    return http;
  }

  static Status add_version(const CallOptions& call, HttpCall& http) {
    HEADRACE_TRY(check_version_id(call.version_id).annotate(http.what));
    if (!call.version_id.empty()) http.query.emplace_back("generation", call.version_id);
    return {};
  }

  Status add_settings(const ObjectSettings* given, HttpCall& http) const {
    auto fields = protocol_->fields_of_write(given);
    if (!fields) return std::move(fields).error().annotate(http.what);
    http.headers.insert(http.headers.end(), fields->begin(), fields->end());
    return {};
  }

  /// Where some of the source's settings are replaced, the others must be said as well.
  Status add_settings_of_copy(const std::string& from_key, const CallOptions& call,
                              HttpCall& http) {
    ObjectSettings room;
    ObjectSettings settings = effective_settings(protocol_->config().settings, call.settings, room);
    if (vendor::replaces_source(settings)) {
      HEADRACE_TRY_ASSIGN(const HeadInfo from, head_whole(from_key, call));
      settings = settings_over(settings, copied_settings(from.info.details->settings));
      http.headers.emplace_back("x-goog-metadata-directive", "REPLACE");
      http.headers.emplace_back("x-goog-copy-source-if-generation-match", from.info.etag);
    }
    return add_settings(&settings, http);
  }

  Result<HeadInfo> head_whole(const std::string& key, const CallOptions& call) {
    HEADRACE_TRY_ASSIGN(HttpCall http, object_call("HEAD", key));
    HEADRACE_TRY(add_version(call, http));
    return engine()->call(http, call,
                          [&key](const HttpAnswer& answer) { return head_info(key, answer); });
  }

  void remove_batch(std::span<const std::string> keys, const CallOptions& call,
                    std::span<Status> outcomes) {
    std::vector<std::string> whole_keys;
    std::multimap<std::string, std::size_t> places;
    for (std::size_t i = 0; i < keys.size(); ++i) {
      std::string key = keys[i].empty() ? std::string() : protocol_->full_key(keys[i]);
      outcomes[i] = check_gcs_key(key);
      if (!outcomes[i].ok()) continue;
      if (!vendor::fits_xml(key)) {
        outcomes[i] = remove(keys[i], call);
        continue;
      }
      // A multimap: the same key may be asked for twice, and both places get its outcome.
      places.emplace(key, i);
      whole_keys.push_back(std::move(key));
    }
    if (whole_keys.empty()) return;
    HttpCall http;
    http.method = "POST";
    http.what = "DELETE " + std::to_string(whole_keys.size()) + " objects of " + url();
    http.query = {{"delete", ""}};
    http.headers = {{"content-type", "application/xml"}};
    http.body = format_delete(whole_keys);
    auto answer = engine()->call(http, call);
    auto failures = answer ? parse_delete(answer->body)
                           : Result<std::vector<DeleteFailure>>(std::move(answer).error());
    // Whose failure it is is not known then, so nothing is known to be deleted.
    for (std::size_t i = 0; failures && i < failures->size(); ++i) {
      if (places.contains((*failures)[i].key)) continue;
      failures = Status(Code::kCorrupt, http.what + ": the answer names the key \"" +
                                            (*failures)[i].key + "\", which was not asked for");
    }
    if (!failures) {
      for (const auto& [key, place] : places) {
        outcomes[place] = Status(failures.error().code(), std::string(failures.error().message()));
      }
      return;
    }
    for (const DeleteFailure& failure : *failures) {
      // Deleting what is not there is a success, as for single objects.
      if (failure.code == "NoSuchKey" || failure.code == "NoSuchVersion") continue;
      http::ResponseHead head;
      head.status = 200;
      const std::string body = "<Error><Code>" + failure.code + "</Code></Error>";
      const auto [first, last] = places.equal_range(failure.key);
      for (auto it = first; it != last; ++it) {
        outcomes[it->second] = error_status("DELETE " + object_url(keys[it->second]), head, body,
                                            protocol_->config().credentials_source);
      }
    }
  }

  const std::shared_ptr<GcsProtocol> protocol_;
  Clock& clock_;
  StoreTraits traits_;
};

Status add_credentials(const StoreOptions& options, const auth::GoogleSettings& settings,
                       const auth::FileReader& read_file, std::shared_ptr<auth::WebClient> web,
                       GcsConfig& config) {
  config.credentials_source = settings.credentials_source;
  if (options.anonymous || config.is_emulator) {  // an emulator asks for nothing, and gets nothing
    config.credentials_source = "anonymous";
    return {};
  }
  if (settings.hmac) {
    config.hmac = settings.hmac;
    config.url_signer = auth::hmac_url_signer(*settings.hmac);
    return {};
  }
  if (!settings.identity) return settings.missing_credentials().annotate(config.root_url);
  HEADRACE_TRY(check_token_path(config));
  const auth::GoogleIdentity& identity = *settings.identity;
  // Google's own service takes a service account's signature for a token: nobody is asked.
  if (web == nullptr && !auth::is_self_signed(identity)) {
    return Status(Code::kUnsupported, config.root_url + ": " + settings.credentials_source +
                                          " needs a token, and nothing here can fetch one");
  }
  if (identity.key != nullptr)
    config.url_signer = auth::rsa_url_signer(identity.client_email, identity.key);
  config.tokens = auth::google_tokens(identity, settings.credentials_source,
                                      {std::move(web), read_file, options.clock});
  return {};
}

}  // namespace

Result<GcsConfig> resolve_gcs_config(const StoreOptions& options, const StoreUrl& url,
                                     const Environment& environment,
                                     std::shared_ptr<auth::WebClient> web) {
  const auth::FileReader read_file = auth::local_file_reader();
  auto settings = auth::resolve_google_settings(environment, read_file);
  if (!settings && !options.anonymous)
    return std::move(settings).error().annotate(http::without_secrets(url.root));
  if (!settings) settings = auth::GoogleSettings();
  HEADRACE_TRY_ASSIGN(GcsConfig config, make_gcs_config(options, url, *settings));
  HEADRACE_TRY(add_credentials(options, *settings, read_file, std::move(web), config));
  return config;
}

Result<std::unique_ptr<Store>> open_gcs_store(const StoreOptions& options, const StoreUrl& url,
                                              const Environment& environment,
                                              std::shared_ptr<auth::WebClient> web) {
  HEADRACE_TRY_ASSIGN(GcsConfig config,
                      resolve_gcs_config(options, url, environment, std::move(web)));
  if (config.is_emulator) return open_emulator_store(options, environment, std::move(config));
  auto protocol = std::make_shared<GcsProtocol>(std::move(config));
  HEADRACE_TRY_ASSIGN(auto engine, TransferEngine::create(protocol, options, environment));
  Clock& clock = options.clock != nullptr ? *options.clock : system_clock();
  return std::unique_ptr<Store>(
      std::make_unique<GcsStore>(std::move(protocol), std::move(engine), clock));
}

}  // namespace headrace::gcs
