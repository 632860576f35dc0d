#pragma once
/// \file
/// ForwardingStore: the base of wrappers. It passes everything on to another store; a wrapper
/// overrides what it changes, and wrap().
///
/// Place: for what lies between a store and its users (logs, caches, faults). docs/extending.md has
/// an example.
///
/// Threads: as class Store says; a handle owns the handle inside it.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "headrace/store.h"

namespace headrace {

class ForwardingStore : public Store {
 public:
  std::size_t submit(std::span<Request> requests) override { return inner_.submit(requests); }
  std::size_t wait(std::span<Completion> out, TimePoint until, std::stop_token stop = {}) override {
    return inner_.wait(out, until, std::move(stop));
  }
  void wake() noexcept override { inner_.wake(); }
  void cancel(std::uint64_t tag) override { inner_.cancel(tag); }
  void stop() noexcept override { inner_.stop(); }
  Result<std::unique_ptr<Store>> new_handle() override;

  Result<ObjectInfo> head(const std::string& key, const CallOptions& call = {}) override;
  Result<ListPage> list(const ListRequest& request, const CallOptions& call = {}) override;
  Status remove(const std::string& key, const CallOptions& call = {}) override;
  std::vector<Status> remove_many(std::span<const std::string> keys,
                                  const CallOptions& call = {}) override;
  Result<ObjectInfo> copy(const std::string& from_key, const std::string& to_key,
                          const CallOptions& call = {}) override;
  Result<ObjectInfo> set_storage_class(const std::string& key, const std::string& storage_class,
                                       const CallOptions& call = {}) override;
  Result<std::string> create_upload(const std::string& key, const CallOptions& call = {}) override;
  Result<ObjectInfo> complete_upload(const std::string& key, const std::string& upload_id,
                                     std::span<const UploadedPart> parts,
                                     const CallOptions& call = {}) override;
  Status abort_upload(const std::string& key, const std::string& upload_id,
                      const CallOptions& call = {}) override;
  Result<std::vector<UploadedPart>> list_parts(const std::string& key, const std::string& upload_id,
                                               const CallOptions& call = {}) override;
  Result<std::vector<PendingUpload>> list_uploads(const std::string& prefix,
                                                  const CallOptions& call = {}) override;
  Result<std::string> presign(const PresignRequest& request) override {
    return inner_.presign(request);
  }

  bool wants_foresight() const noexcept override { return inner_.wants_foresight(); }
  std::uint64_t read_count() const noexcept override { return inner_.read_count(); }
  void foresee(std::span<const ForeseenRead> reads, std::uint64_t since) override {
    inner_.foresee(reads, since);
  }
  bool holds(std::string_view key, std::string_view etag, std::uint64_t offset_bytes,
             std::uint64_t length_bytes) override {
    return inner_.holds(key, etag, offset_bytes, length_bytes);
  }

  const StoreTraits& traits() const noexcept override { return inner_.traits(); }
  const ObjectSettings& settings() const noexcept override { return inner_.settings(); }
  Status check_settings(const ObjectSettings& settings) const override {
    return inner_.check_settings(settings);
  }
  const std::string& url() const noexcept override { return inner_.url(); }
  std::string origin() const override { return inner_.origin(); }
  /// Empty, whatever is inside: a wrapper wants to see every access.
  std::string local_directory() const override { return {}; }
  void append_metrics(MetricList& out) const override { inner_.append_metrics(out); }

 protected:
  explicit ForwardingStore(std::unique_ptr<Store> inner)
      : owned_(std::move(inner)), inner_(*owned_) {}
  /// `inner` outlives it.
  explicit ForwardingStore(Store& inner) : inner_(inner) {}

  Store& inner() const noexcept { return inner_; }
  /// The same wrapper around another handle of the store inside.
  virtual Result<std::unique_ptr<Store>> wrap(std::unique_ptr<Store> handle) = 0;
  /// Asked before each call of the control plane, with its name ("HEAD", "LIST", ...) and its key
  /// or prefix (remove_many: the first of its keys); with an error the call ends in that, and the
  /// store inside is not asked.
  virtual Status before_call(std::string_view call, const std::string& key) {
    static_cast<void>(call);
    static_cast<void>(key);
    return {};
  }

 private:
  const std::unique_ptr<Store> owned_;
  Store& inner_;
};

}  // namespace headrace
