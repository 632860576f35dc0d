#pragma once
/// \file
/// OddStore: a store whose answers a test bends. Threads: as the store inside; the hooks are called
/// where the store is.
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "headrace/store.h"

namespace headrace {

class OddStore final : public Store {
 public:
  struct Hooks {
    StoreTraits traits;
    std::string local_directory;
    std::function<Result<ListPage>(const ListRequest&)> list;
    std::function<std::vector<PendingUpload>()> uploads;
    std::function<std::vector<UploadedPart>()> parts;
    std::function<void(const std::string& upload_id)> on_abort;
    std::function<void(const std::string& upload_id)> on_create;
  };
  OddStore(std::unique_ptr<Store> inner, Hooks hooks)
      : inner_(std::move(inner)), hooks_(std::move(hooks)) {}

  std::size_t submit(std::span<Request> requests) override { return inner_->submit(requests); }
  std::size_t wait(std::span<Completion> out, TimePoint until, std::stop_token stop) override {
    return inner_->wait(out, until, std::move(stop));
  }
  void wake() noexcept override { inner_->wake(); }
  void cancel(std::uint64_t tag) override { inner_->cancel(tag); }
  void stop() noexcept override { inner_->stop(); }
  Result<std::unique_ptr<Store>> new_handle() override {
    HEADRACE_TRY_ASSIGN(auto inner, inner_->new_handle());
    return std::unique_ptr<Store>(std::make_unique<OddStore>(std::move(inner), hooks_));
  }
  Result<ObjectInfo> head(const std::string& key, const CallOptions& call) override {
    return inner_->head(key, call);
  }
  Result<ListPage> list(const ListRequest& request, const CallOptions& call) override {
    return hooks_.list ? hooks_.list(request) : inner_->list(request, call);
  }
  Status remove(const std::string& key, const CallOptions& call) override {
    return inner_->remove(key, call);
  }
  Result<ObjectInfo> copy(const std::string& from_key, const std::string& to_key,
                          const CallOptions& call) override {
    return inner_->copy(from_key, to_key, call);
  }
  Result<std::string> create_upload(const std::string& key, const CallOptions& call) override {
    auto id = inner_->create_upload(key, call);
    if (id && hooks_.on_create) hooks_.on_create(*id);
    return id;
  }
  Result<ObjectInfo> complete_upload(const std::string& key, const std::string& upload_id,
                                     std::span<const UploadedPart> parts,
                                     const CallOptions& call) override {
    return inner_->complete_upload(key, upload_id, parts, call);
  }
  Status abort_upload(const std::string& key, const std::string& upload_id,
                      const CallOptions& call) override {
    if (hooks_.on_abort) hooks_.on_abort(upload_id);
    return inner_->abort_upload(key, upload_id, call);
  }
  Result<std::vector<UploadedPart>> list_parts(const std::string& key, const std::string& upload_id,
                                               const CallOptions& call) override {
    if (hooks_.parts) return hooks_.parts();
    return inner_->list_parts(key, upload_id, call);
  }
  Result<std::vector<PendingUpload>> list_uploads(const std::string& prefix,
                                                  const CallOptions& call) override {
    if (hooks_.uploads) return hooks_.uploads();
    return inner_->list_uploads(prefix, call);
  }
  const StoreTraits& traits() const noexcept override { return hooks_.traits; }
  const std::string& url() const noexcept override { return inner_->url(); }
  std::string local_directory() const override { return hooks_.local_directory; }
  void append_metrics(MetricList& out) const override { inner_->append_metrics(out); }

 private:
  const std::unique_ptr<Store> inner_;
  const Hooks hooks_;
};

}  // namespace headrace
