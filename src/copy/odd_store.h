#pragma once
/// \file
/// OddStore: a store whose answers a test bends. Threads: as the store inside; the hooks are called
/// where the store is.
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "headrace/forwarding_store.h"

namespace headrace {

class OddStore final : public ForwardingStore {
 public:
  struct Hooks {
    StoreTraits traits;
    std::string local_directory;
    std::function<Result<ListPage>(const ListRequest&)> list;
    std::function<std::vector<PendingUpload>()> uploads;
    std::function<std::vector<UploadedPart>()> parts;
    std::function<void(const std::string& upload_id)> on_abort;
    std::function<void(const std::string& upload_id)> on_create;
    std::function<void(Request&)> on_submit;
  };
  OddStore(std::unique_ptr<Store> inner, Hooks hooks)
      : ForwardingStore(std::move(inner)), hooks_(std::move(hooks)) {}

  std::size_t submit(std::span<Request> requests) override {
    for (Request& request : requests) {
      if (hooks_.on_submit) hooks_.on_submit(request);
    }
    return inner().submit(requests);
  }
  Result<ListPage> list(const ListRequest& request, const CallOptions& call) override {
    return hooks_.list ? hooks_.list(request) : inner().list(request, call);
  }
  Result<std::string> create_upload(const std::string& key, const CallOptions& call) override {
    auto id = inner().create_upload(key, call);
    if (id && hooks_.on_create) hooks_.on_create(*id);
    return id;
  }
  Status abort_upload(const std::string& key, const std::string& upload_id,
                      const CallOptions& call) override {
    if (hooks_.on_abort) hooks_.on_abort(upload_id);
    return inner().abort_upload(key, upload_id, call);
  }
  Result<std::vector<UploadedPart>> list_parts(const std::string& key, const std::string& upload_id,
                                               const CallOptions& call) override {
    if (hooks_.parts) return hooks_.parts();
    return inner().list_parts(key, upload_id, call);
  }
  Result<std::vector<PendingUpload>> list_uploads(const std::string& prefix,
                                                  const CallOptions& call) override {
    if (hooks_.uploads) return hooks_.uploads();
    return inner().list_uploads(prefix, call);
  }
  const StoreTraits& traits() const noexcept override { return hooks_.traits; }
  std::string local_directory() const override { return hooks_.local_directory; }

 private:
  Result<std::unique_ptr<Store>> wrap(std::unique_ptr<Store> handle) override {
    return std::unique_ptr<Store>(std::make_unique<OddStore>(std::move(handle), hooks_));
  }

  const Hooks hooks_;
};

}  // namespace headrace
