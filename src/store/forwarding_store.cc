#include "headrace/forwarding_store.h"

namespace headrace {

Result<std::unique_ptr<Store>> ForwardingStore::new_handle() {
  HEADRACE_TRY_ASSIGN(auto handle, inner_.new_handle());
  return wrap(std::move(handle));
}

Result<ObjectInfo> ForwardingStore::head(const std::string& key, const CallOptions& call) {
  HEADRACE_TRY(before_call("HEAD", key));
  return inner_.head(key, call);
}

Result<ListPage> ForwardingStore::list(const ListRequest& request, const CallOptions& call) {
  HEADRACE_TRY(before_call("LIST", request.prefix));
  return inner_.list(request, call);
}

Status ForwardingStore::remove(const std::string& key, const CallOptions& call) {
  HEADRACE_TRY(before_call("DELETE", key));
  return inner_.remove(key, call);
}

std::vector<Status> ForwardingStore::remove_many(std::span<const std::string> keys,
                                                 const CallOptions& call) {
  const Status refused = before_call("DELETE", keys.empty() ? std::string() : keys.front());
  if (refused.ok()) return inner_.remove_many(keys, call);
  std::vector<Status> results;
  for (std::size_t i = 0; i < keys.size(); ++i) results.push_back(refused.clone());
  return results;
}

Result<ObjectInfo> ForwardingStore::copy(const std::string& from_key, const std::string& to_key,
                                         const CallOptions& call) {
  HEADRACE_TRY(before_call("COPY", from_key));
  return inner_.copy(from_key, to_key, call);
}

Result<ObjectInfo> ForwardingStore::set_storage_class(const std::string& key,
                                                      const std::string& storage_class,
                                                      const CallOptions& call) {
  HEADRACE_TRY(before_call("SET CLASS", key));
  return inner_.set_storage_class(key, storage_class, call);
}

Result<std::string> ForwardingStore::create_upload(const std::string& key,
                                                   const CallOptions& call) {
  HEADRACE_TRY(before_call("CREATE UPLOAD", key));
  return inner_.create_upload(key, call);
}

Result<ObjectInfo> ForwardingStore::complete_upload(const std::string& key,
                                                    const std::string& upload_id,
                                                    std::span<const UploadedPart> parts,
                                                    const CallOptions& call) {
  HEADRACE_TRY(before_call("COMPLETE UPLOAD", key));
  return inner_.complete_upload(key, upload_id, parts, call);
}

Status ForwardingStore::abort_upload(const std::string& key, const std::string& upload_id,
                                     const CallOptions& call) {
  HEADRACE_TRY(before_call("ABORT UPLOAD", key));
  return inner_.abort_upload(key, upload_id, call);
}

Result<std::vector<UploadedPart>> ForwardingStore::list_parts(const std::string& key,
                                                              const std::string& upload_id,
                                                              const CallOptions& call) {
  HEADRACE_TRY(before_call("LIST", key));
  return inner_.list_parts(key, upload_id, call);
}

Result<std::vector<PendingUpload>> ForwardingStore::list_uploads(const std::string& prefix,
                                                                 const CallOptions& call) {
  HEADRACE_TRY(before_call("LIST", prefix));
  return inner_.list_uploads(prefix, call);
}

}  // namespace headrace
