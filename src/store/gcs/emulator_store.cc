// What the JSON API of emulators lacks is made up for here: listings are read whole, sorted, and
// cut into pages of ours; uploads are objects that are composed. It costs a whole listing a page,
// which is fine for an emulator and would not be for a bucket.
#include "store/gcs/emulator_store.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "base/strings.h"
#include "http/date.h"
#include "store/engine_store.h"
#include "store/gcs/emulator_protocol.h"
#include "store/list_pager.h"
#include "store/vendor/error_table.h"

namespace headrace::gcs {
namespace {

using nlohmann::json;

constexpr std::string_view kUploads = ".headrace-uploads/";
constexpr std::size_t kMaxComposed = 32;  // Google: sources of one compose request

Result<json> parse_answer(const HttpAnswer& answer) {
  json object = json::parse(answer.body, nullptr, false);
  if (!object.is_object()) return Status(Code::kCorrupt, "the answer is not a JSON object");
  return object;
}

std::string text_of(const json& object, const char* name) {
  const auto it = object.find(name);
  return it != object.end() && it->is_string() ? it->get<std::string>() : std::string();
}

std::shared_ptr<const ObjectDetails> details_of(const json& resource) {
  auto details = std::make_shared<ObjectDetails>();
  ObjectSettings& settings = details->settings;
  settings.content_type = text_of(resource, "contentType");
  settings.content_encoding = text_of(resource, "contentEncoding");
  settings.content_language = text_of(resource, "contentLanguage");
  settings.content_disposition = text_of(resource, "contentDisposition");
  settings.cache_control = text_of(resource, "cacheControl");
  settings.storage_class = text_of(resource, "storageClass");
  details->version_id = text_of(resource, "generation");
  const auto metadata = resource.find("metadata");
  if (metadata == resource.end() || !metadata->is_object()) return details;
  for (const auto& [name, value] : metadata->items())
    if (value.is_string()) settings.metadata.emplace(to_lower(name), value.get<std::string>());
  return details;
}

/// An object resource; its name stays whole.
Result<ObjectInfo> info_of(const json& resource) {
  ObjectInfo info;
  info.key = text_of(resource, "name");
  info.etag = text_of(resource, "generation");
  const auto size = parse_decimal<std::uint64_t>(text_of(resource, "size"));
  if (info.key.empty() || info.etag.empty() || !size)
    return Status(Code::kCorrupt, "an object without name, size or generation");
  info.size_bytes = *size;
  // fake-gcs-server tells local time with its offset; of whole seconds only the first 19 characters
  // matter, and the offset is left to the server (emulators run in UTC).
  std::string updated = text_of(resource, "updated").substr(0, 19);
  if (const auto time = http::parse_iso_date(updated + "Z"))
    info.modified_unix_s = time->time_since_epoch().count();
  info.storage_class = text_of(resource, "storageClass");
  return info;
}

class EmulatorStore final : public EngineStore {
 public:
  EmulatorStore(std::shared_ptr<EmulatorProtocol> protocol, std::shared_ptr<TransferEngine> engine)
      : EngineStore(std::move(engine)), protocol_(std::move(protocol)) {}

  Result<std::unique_ptr<Store>> new_handle() override {
    return std::unique_ptr<Store>(std::make_unique<EmulatorStore>(protocol_, engine()));
  }

  Result<ObjectInfo> head(const std::string& key, const CallOptions& call) override {
    HEADRACE_TRY_ASSIGN(HttpCall http, object_call("GET", "HEAD", key));
    HEADRACE_TRY(add_version("generation", call, http));
    HEADRACE_TRY_ASSIGN(ObjectInfo info, resource(http, call));
    info.key = key;
    return info;
  }

  Result<ListPage> list(const ListRequest& request, const CallOptions& call) override {
    const std::string what =
        "LIST " + (request.prefix.empty() ? url() : object_url(request.prefix));
    HEADRACE_TRY(check_page_size(request, what));
    ListPager pager(request);
    HEADRACE_TRY(pager.check());
    const std::string& root = protocol_->config().prefix;
    HEADRACE_TRY_ASSIGN(std::vector<ObjectInfo> all, list_whole(root + request.prefix, what, call));
    for (ObjectInfo& info : all) {
      if (info.key.starts_with(kUploads)) continue;
      info.key.erase(0, root.size());
      if (!info.key.empty() && !pager.add(std::move(info))) break;
    }
    return pager.take();
  }

  Status remove(const std::string& key, const CallOptions& call) override {
    HEADRACE_TRY_ASSIGN(HttpCall http, object_call("DELETE", "DELETE", key));
    HEADRACE_TRY(add_version("generation", call, http));
    return without_missing(engine()->call(http, call));
  }

  Result<ObjectInfo> copy(const std::string& from_key, const std::string& to_key,
                          const CallOptions& call) override {
    const GcsConfig& config = protocol_->config();
    HEADRACE_TRY_ASSIGN(HttpCall http, object_call("POST", "COPY", from_key));
    http.what += " to " + object_url(to_key);
    if (Status s = check_gcs_key(to_key.empty() ? to_key : config.prefix + to_key); !s.ok())
      return std::move(s).annotate(http.what);
    HEADRACE_TRY(add_version("sourceGeneration", call, http));
    ObjectSettings room;
    HEADRACE_TRY_ASSIGN(const ObjectSettings* const settings,
                        protocol_->settings_of_write(call.settings, room));
    if (!settings->empty())
      return Status(Code::kUnsupported, http.what + ": an emulator copies settings as they are");
    http.path +=
        "/copyTo" +
        protocol_->object_path(config.prefix + to_key).substr(std::size("/storage/v1") - 1);
    HEADRACE_TRY_ASSIGN(ObjectInfo info, resource(http, call));
    info.key = to_key;
    return info;
  }

  Result<std::string> create_upload(const std::string& key, const CallOptions& call) override {
    HEADRACE_TRY_ASSIGN(HttpCall http, object_call("GET", "CREATE UPLOAD", key));
    // One listing, so that a missing bucket and a passed deadline show here.
    http.path = protocol_->objects_path();
    http.query = {{"maxResults", "1"}};
    ObjectSettings room;
    auto settings = protocol_->settings_of_write(call.settings, room);
    if (!settings) return std::move(settings).error().annotate(http.what);
    auto answer = engine()->call(http, call);
    if (!answer) return std::move(answer).error();
    return protocol_->begin_upload();
  }

  Result<ObjectInfo> complete_upload(const std::string& key, const std::string& upload_id,
                                     std::span<const UploadedPart> parts,
                                     const CallOptions& call) override {
    HEADRACE_TRY_ASSIGN(HttpCall http, object_call("POST", "COMPLETE", key));
    HEADRACE_TRY(check_upload(upload_id, http.what));
    HEADRACE_TRY_ASSIGN(const auto there, list_parts(key, upload_id, call));
    HEADRACE_TRY(check_parts(parts, there, http.what));
    std::vector<std::string> names;
    for (const UploadedPart& part : parts)
      names.push_back(EmulatorProtocol::part_key(upload_id, part.part_number));
    // The first part keeps its name, so a later compose finds what was put together so far.
    // 32 at a time into the first, which grows.
    const std::string whole = protocol_->config().prefix + key;
    while (names.size() > kMaxComposed) {
      const std::vector<std::string> some(names.begin(), names.begin() + kMaxComposed);
      HEADRACE_TRY_ASSIGN(const ObjectInfo grown, compose(some, names.front(), http.what, call));
      names.erase(names.begin() + 1, names.begin() + kMaxComposed);
    }
    HEADRACE_TRY_ASSIGN(ObjectInfo info, compose(names, whole, http.what, call));
    info.key = key;
    static_cast<void>(abort_upload(key, upload_id, call));  // the parts are of no use any more
    return info;
  }

  Status abort_upload(const std::string& key, const std::string& upload_id,
                      const CallOptions& call) override {
    if (!protocol_->forget_upload(upload_id)) return {};
    const std::string what = "ABORT " + object_url(key);
    HEADRACE_TRY_ASSIGN(const auto all,
                        list_whole(std::string(kUploads) + upload_id + "/", what, call));
    for (const ObjectInfo& info : all) {
      HttpCall http;
      http.method = "DELETE";
      http.what = what;
      http.path = protocol_->object_path(info.key);
      HEADRACE_TRY(without_missing(engine()->call(http, call)));
    }
    return {};
  }

  Result<std::vector<UploadedPart>> list_parts(const std::string& key, const std::string& upload_id,
                                               const CallOptions& call) override {
    const std::string what = "LIST PARTS " + object_url(key);
    HEADRACE_TRY(check_upload(upload_id, what));
    const std::string prefix = std::string(kUploads) + upload_id + "/";
    HEADRACE_TRY_ASSIGN(const auto all, list_whole(prefix, what, call));
    std::vector<UploadedPart> parts;
    for (const ObjectInfo& info : all) {
      const std::string_view digits = std::string_view(info.key).substr(prefix.size());
      if (const auto number = parse_decimal<std::uint32_t>(digits))
        parts.push_back({*number, info.etag, info.size_bytes});
    }
    return parts;
  }

  const std::string& url() const noexcept override { return protocol_->config().root_url; }
  const ObjectSettings& settings() const noexcept override { return protocol_->config().settings; }
  Status check_settings(const ObjectSettings& settings) const override {
    return EmulatorProtocol::check_settings(settings);
  }

 private:
  Result<HttpCall> object_call(const char* method, const char* what, const std::string& key) const {
    HttpCall http;
    http.method = method;
    http.what = std::string(what) + " " + object_url(key);
    const std::string whole = key.empty() ? key : protocol_->config().prefix + key;
    if (Status s = check_gcs_key(whole); !s.ok()) return std::move(s).annotate(http.what);
    http.path = protocol_->object_path(whole);
    return http;
  }

  /// A call whose answer is an object resource.
  Result<ObjectInfo> resource(const HttpCall& http, const CallOptions& call) {
    return engine()->call(http, call, [](const HttpAnswer& answer) -> Result<ObjectInfo> {
      HEADRACE_TRY_ASSIGN(const json object, parse_answer(answer));
      HEADRACE_TRY_ASSIGN(ObjectInfo info, info_of(object));
      info.details = details_of(object);
      return info;
    });
  }

  /// All objects whose whole key has the prefix, in byte order.
  Result<std::vector<ObjectInfo>> list_whole(const std::string& prefix, const std::string& what,
                                             const CallOptions& call) {
    std::vector<ObjectInfo> all;
    std::string token;
    std::set<std::string> tokens;
    do {
      HttpCall http;
      http.what = what;
      http.path = protocol_->objects_path();
      http.query = {{"prefix", prefix}, {"maxResults", "1000"}};
      if (!token.empty()) http.query.emplace_back("pageToken", token);
      const auto read = [&](const HttpAnswer& answer) -> Result<json> {
        HEADRACE_TRY_ASSIGN(json page, parse_answer(answer));
        const std::string next = text_of(page, "nextPageToken");
        if (!next.empty() && tokens.contains(next))
          return Status(Code::kCorrupt, "the store continues twice at the same place");
        return page;
      };
      HEADRACE_TRY_ASSIGN(const json page, engine()->call(http, call, read));
      const auto items = page.find("items");
      if (items != page.end() && items->is_array()) {
        for (const json& item : *items) {
          auto info = info_of(item);
          if (!info) return std::move(info).error().annotate(what);
          all.push_back(*std::move(info));
        }
      }
      token = text_of(page, "nextPageToken");
      tokens.insert(token);
    } while (!token.empty());
    std::sort(all.begin(), all.end(),
              [](const ObjectInfo& a, const ObjectInfo& b) { return a.key < b.key; });
    return all;
  }

  Status check_upload(const std::string& upload_id, const std::string& what) const {
    if (protocol_->has_upload(upload_id)) return {};
    return Status(Code::kNotFound,
                  what + ": no such upload: completed, aborted, or begun by another program");
  }

  static Status check_parts(std::span<const UploadedPart> parts,
                            const std::vector<UploadedPart>& there, const std::string& what) {
    if (parts.empty()) return Status(Code::kInvalidArgument, what + ": an upload needs a part");
    std::uint32_t last = 0;
    for (const UploadedPart& part : parts) {
      const bool is_there = std::any_of(there.begin(), there.end(), [&part](const auto& other) {
        return other.part_number == part.part_number && other.etag == part.etag;
      });
      if (!is_there || part.part_number <= last) {
        return Status(Code::kInvalidArgument,
                      what + ": part " + std::to_string(part.part_number) +
                          " is missing, has another ETag or is out of order");
      }
      last = part.part_number;
    }
    return {};
  }

  Result<ObjectInfo> compose(const std::vector<std::string>& names, const std::string& whole_key,
                             const std::string& what, const CallOptions& call) {
    ObjectSettings room;
    HEADRACE_TRY_ASSIGN(const ObjectSettings* const settings,
                        protocol_->settings_of_write(call.settings, room));
    const std::string& type = settings->content_type;
    HttpCall http;
    http.method = "POST";
    http.what = what;
    http.path = protocol_->object_path(whole_key) + "/compose";
    http.headers = {{"content-type", "application/json"}};
    json sources = json::array();
    for (const std::string& name : names) sources.push_back({{"name", name}});
    json target{{"contentType", type.empty() ? "application/octet-stream" : type}};
    if (!settings->content_encoding.empty()) target["contentEncoding"] = settings->content_encoding;
    http.body = json{{"sourceObjects", sources}, {"destination", target}}.dump();
    return resource(http, call);
  }

  static Status add_version(const char* name, const CallOptions& call, HttpCall& http) {
    HEADRACE_TRY(check_version_id(call.version_id).annotate(http.what));
    if (!call.version_id.empty()) http.query.emplace_back(name, call.version_id);
    return {};
  }

  static Status without_missing(Result<HttpAnswer> answer) {
    return answer ? Status() : vendor::without_missing(std::move(answer).error(), {});
  }

  const std::shared_ptr<EmulatorProtocol> protocol_;
};

}  // namespace

Result<std::unique_ptr<Store>> open_emulator_store(const StoreOptions& options,
                                                   const Environment& environment,
                                                   GcsConfig config) {
  Clock& clock = options.clock != nullptr ? *options.clock : system_clock();
  const auto seed = static_cast<std::uint64_t>(clock.now().time_since_epoch().count());
  auto protocol = std::make_shared<EmulatorProtocol>(std::move(config), seed);
  HEADRACE_TRY_ASSIGN(auto engine, TransferEngine::create(protocol, options, environment));
  return std::unique_ptr<Store>(
      std::make_unique<EmulatorStore>(std::move(protocol), std::move(engine)));
}

}  // namespace headrace::gcs
