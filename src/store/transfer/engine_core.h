#pragma once
/// \file
/// EngineCore: the reactors and the handle cores of one engine. Threads: any.
#include <memory>
#include <vector>

#include "base/mutex.h"
#include "headrace/metrics.h"
#include "headrace/store.h"
#include "store/http_protocol.h"
#include "store/transfer/endpoint_control.h"
#include "store/transfer/handle_core.h"
#include "store/transfer/reactor.h"

namespace headrace::transfer {

Result<std::unique_ptr<Poller>> create_poller(PollerKind kind);

class EngineCore {
 public:
  static Result<std::shared_ptr<EngineCore>> create(std::shared_ptr<HttpProtocol> protocol,
                                                    const StoreOptions& options,
                                                    NetSettings network);
  EngineCore(std::shared_ptr<HttpProtocol> protocol, const StoreOptions& options,
             NetSettings network);
  ~EngineCore();  ///< \pre all handles are released
  EngineCore(const EngineCore&) = delete;
  EngineCore& operator=(const EngineCore&) = delete;

  HandleCore* acquire_handle();
  /// Waits until everything that the handle asked for has ended.
  void release_handle(HandleCore* handle);

  Result<HttpAnswer> call(const HttpCall& call, const CallOptions& call_options);
  const StoreOptions& options() const noexcept { return options_; }
  void append_metrics(MetricList& out) const;
  std::string origin() const {
    const HttpEndpoint& endpoint = protocol_->endpoint();
    return endpoint.host + ":" + std::to_string(endpoint.port);
  }
  const char* poller_name() const noexcept { return reactors_.front()->poller_name(); }

 private:
  const std::shared_ptr<HttpProtocol> protocol_;
  const StoreOptions options_;
  Network network_;
  std::unique_ptr<EndpointControl> control_;
  Mutex mutex_;
  std::vector<std::unique_ptr<HandleCore>> handles_ HEADRACE_GUARDED_BY(mutex_);
  std::vector<HandleCore*> free_handles_ HEADRACE_GUARDED_BY(mutex_);
  std::vector<std::unique_ptr<Reactor>>
      reactors_;  // last: their threads end before the handles that they signal
};

}  // namespace headrace::transfer
