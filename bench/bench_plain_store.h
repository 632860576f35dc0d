#pragma once
/// \file
/// Two ways for fetch_bench to reach objects: the public Store, and the transfer engine below it
/// with unsigned requests.
#include <memory>
#include <string>
#include <utility>

#include "headrace/store.h"
#include "store/transfer/transfer_engine.h"

namespace headrace {

class FetchClient {
 public:
  virtual ~FetchClient() = default;
  virtual std::size_t submit(std::span<Request> requests) = 0;
  virtual std::size_t wait(std::span<Completion> out, TimePoint until) = 0;
  virtual void append_metrics(MetricList& out) const = 0;
};

class PublicClient final : public FetchClient {
 public:
  explicit PublicClient(std::unique_ptr<Store> store) : store_(std::move(store)) {}
  std::size_t submit(std::span<Request> requests) override { return store_->submit(requests); }
  std::size_t wait(std::span<Completion> out, TimePoint until) override {
    return store_->wait(out, until);
  }
  void append_metrics(MetricList& out) const override { store_->append_metrics(out); }

 private:
  std::unique_ptr<Store> store_;
};

/// Unsigned path-style requests.
class PlainProtocol final : public HttpProtocol {
 public:
  PlainProtocol(HttpEndpoint endpoint, std::string bucket)
      : endpoint_(std::move(endpoint)), bucket_(std::move(bucket)) {}
  const HttpEndpoint& endpoint() const noexcept override { return endpoint_; }
  Status append_head(const Request& request, const HeadContext&, std::string& out) override {
    out.append("GET /")
        .append(bucket_)
        .append("/")
        .append(request.key)
        .append(" HTTP/1.1\r\nHost: ")
        .append(endpoint_.host);
    out.append("\r\nRange: bytes=").append(std::to_string(request.offset_bytes)).append("-");
    out.append(std::to_string(request.offset_bytes + request.length_bytes - 1)).append("\r\n\r\n");
    return {};
  }
  Status append_head(const HttpCall& call, const HeadContext&, std::string&) override {
    return Status(Code::kUnsupported, call.what);
  }
  Status error_from(std::string_view what, const http::ResponseHead& head,
                    std::string_view) override {
    return Status(Code::kUnavailable,
                  std::string(what) + ": HTTP status " + std::to_string(head.status));
  }
  std::string describe(const Request& request) const override {
    return "GET " + std::string(request.key);
  }

 private:
  HttpEndpoint endpoint_;
  std::string bucket_;
};

class EngineClient final : public FetchClient {
 public:
  explicit EngineClient(std::shared_ptr<TransferEngine> engine)
      : engine_(std::move(engine)), handle_(engine_->new_handle()) {}
  std::size_t submit(std::span<Request> requests) override { return handle_->submit(requests); }
  std::size_t wait(std::span<Completion> out, TimePoint until) override {
    return handle_->wait(out, until);
  }
  void append_metrics(MetricList& out) const override { engine_->append_metrics(out); }

 private:
  std::shared_ptr<TransferEngine> engine_;
  std::unique_ptr<TransferHandle> handle_;
};

inline Result<std::unique_ptr<FetchClient>> open_plain(const StoreOptions& options) {
  // "http://host:port" and "s3://bucket"
  const std::string authority = options.endpoint.substr(options.endpoint.find("//") + 2);
  const auto colon = authority.rfind(':');
  HttpEndpoint endpoint;
  endpoint.host = authority.substr(0, colon);
  if (colon != std::string::npos)
    endpoint.port = static_cast<std::uint16_t>(std::stoi(authority.substr(colon + 1)));
  auto protocol =
      std::make_shared<PlainProtocol>(endpoint, options.url.substr(options.url.find("//") + 2));
  HEADRACE_TRY_ASSIGN(auto engine, TransferEngine::create(std::move(protocol), options));
  return std::unique_ptr<FetchClient>(std::make_unique<EngineClient>(std::move(engine)));
}

inline Result<std::unique_ptr<FetchClient>> open_public(const StoreOptions& options,
                                                        const Environment& environment) {
  HEADRACE_TRY_ASSIGN(auto store, open_store(options, environment));
  return std::unique_ptr<FetchClient>(std::make_unique<PublicClient>(std::move(store)));
}

}  // namespace headrace
