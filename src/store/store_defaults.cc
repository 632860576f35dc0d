// What the Store contract says of stores that cannot do more.
#include "headrace/store.h"
#include "store/vendor/setting_fields.h"

namespace headrace {

std::vector<Status> Store::remove_many(std::span<const std::string> keys, const CallOptions& call) {
  std::vector<Status> results;
  results.reserve(keys.size());
  for (const std::string& key : keys) results.push_back(remove(key, call));
  return results;
}

Result<ObjectInfo> Store::set_storage_class(const std::string& key,
                                            const std::string& storage_class,
                                            const CallOptions& call) {
  ObjectSettings wanted;
  wanted.storage_class = storage_class;
  HEADRACE_TRY(check_settings(wanted).annotate("SET CLASS of " + object_url(key)));
  HEADRACE_TRY_ASSIGN(ObjectInfo info, head(key, {.deadline = call.deadline, .stop = call.stop}));
  if (info.details != nullptr && info.details->settings.storage_class == storage_class) return info;
  return copy(key, key, {.deadline = call.deadline, .stop = call.stop, .settings = &wanted});
}

Result<std::vector<UploadedPart>> Store::list_parts(const std::string& key, const std::string&,
                                                    const CallOptions&) {
  return Status(Code::kUnsupported,
                object_url(key) + ": this store cannot list the parts of uploads");
}

Result<std::vector<PendingUpload>> Store::list_uploads(const std::string&, const CallOptions&) {
  return Status(Code::kUnsupported, url() + ": this store cannot list unfinished uploads");
}

Result<std::string> Store::presign(const PresignRequest& request) {
  return Status(Code::kUnsupported, object_url(request.key) + ": this store has no presigned URLs");
}

const StoreTraits& Store::traits() const noexcept {
  static constexpr StoreTraits kDefault;
  return kDefault;
}

const ObjectSettings& Store::settings() const noexcept {
  static const ObjectSettings kNone;
  return kNone;
}

Status Store::check_settings(const ObjectSettings& settings) const {
  return vendor::check_settings(settings, {.vendor = url(), .fields = {}, .metadata_prefix = {}});
}

}  // namespace headrace
