#pragma once
/// \file
/// FreshStore: another store, every get over a connection of its own: for reading again what made
/// no sense.
///
/// Place: open.cc.
///
/// Threads: as the store below.
#include <memory>

#include "headrace/store.h"

namespace headrace::detail {

class FreshStore final : public Store {
 public:
  /// `inner` outlives it.
  explicit FreshStore(Store& inner) : inner_(inner) {}
  /// A handle: owns its store.
  explicit FreshStore(std::unique_ptr<Store> inner) : owned_(std::move(inner)), inner_(*owned_) {}

  std::size_t submit(std::span<Request> requests) override {
    for (Request& request : requests) request.fresh_connection = request.op == Op::kGet;
    return inner_.submit(requests);
  }
  std::size_t wait(std::span<Completion> out, TimePoint until, std::stop_token stop) override {
    return inner_.wait(out, until, std::move(stop));
  }
  void wake() noexcept override { inner_.wake(); }
  void cancel(std::uint64_t tag) override { inner_.cancel(tag); }
  void stop() noexcept override { inner_.stop(); }
  Result<std::unique_ptr<Store>> new_handle() override {
    HEADRACE_TRY_ASSIGN(auto handle, inner_.new_handle());
    return std::unique_ptr<Store>(std::make_unique<FreshStore>(std::move(handle)));
  }

  Result<ObjectInfo> head(const std::string& key, const CallOptions& call) override {
    return inner_.head(key, call);
  }
  Result<ListPage> list(const ListRequest& request, const CallOptions& call) override {
    return inner_.list(request, call);
  }
  const StoreTraits& traits() const noexcept override { return inner_.traits(); }
  const std::string& url() const noexcept override { return inner_.url(); }
  std::string local_directory() const override { return inner_.local_directory(); }
  void append_metrics(MetricList& out) const override { inner_.append_metrics(out); }

  // Nothing is written while an index is made.
  Status remove(const std::string&, const CallOptions&) override { return read_only(); }
  Result<ObjectInfo> copy(const std::string&, const std::string&, const CallOptions&) override {
    return read_only();
  }
  Result<std::string> create_upload(const std::string&, const CallOptions&) override {
    return read_only();
  }
  Result<ObjectInfo> complete_upload(const std::string&, const std::string&,
                                     std::span<const UploadedPart>, const CallOptions&) override {
    return read_only();
  }
  Status abort_upload(const std::string&, const std::string&, const CallOptions&) override {
    return read_only();
  }

 private:
  static Status read_only() { return Status(Code::kUnsupported, "a store for reading again"); }

  const std::unique_ptr<Store> owned_;
  Store& inner_;
};

}  // namespace headrace::detail
