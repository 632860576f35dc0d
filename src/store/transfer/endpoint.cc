#include "store/transfer/endpoint.h"

#include <algorithm>
#include <utility>

namespace headrace::transfer {
namespace {

bool is_same(const HttpEndpoint& left, const HttpEndpoint& right) {
  return left.port == right.port && left.use_tls == right.use_tls && left.host == right.host;
}

/// host:port, the port always there as CONNECT wants it.
std::string authority_of(const HttpEndpoint& endpoint) {
  const bool is_v6 = endpoint.host.find(':') != std::string::npos;
  return (is_v6 ? "[" + endpoint.host + "]" : endpoint.host) + ":" + std::to_string(endpoint.port);
}

}  // namespace

Result<std::shared_ptr<TlsContext>> Network::tls() {
  MutexLock lock(mutex_);
  if (!tls_) {
    HEADRACE_TRY_ASSIGN(tls_, TlsContext::create(settings_.tls));
  }
  return tls_;
}

Endpoint::Endpoint(HttpEndpoint target_in)
    : target(std::move(target_in)), connect_host(target.host), connect_port(target.port) {}

Status Endpoint::prepare(Network& network) {
  if (target.use_tls) {
    HEADRACE_TRY_ASSIGN(plan.tls, network.tls());
    plan.host = target.host;
    plan.resumption = &resumption;
  }
  if (const http::Proxy* proxy = network.proxies().find(target.host, target.port, target.use_tls)) {
    connect_host = proxy->host;
    connect_port = proxy->port;
    std::string field;
    if (!proxy->authorization.empty())
      field = "Proxy-Authorization: " + proxy->authorization + "\r\n";
    const std::string authority = authority_of(target);
    if (target.use_tls) {
      plan.tunnel_head =
          "CONNECT " + authority + " HTTP/1.1\r\nHost: " + authority + "\r\n" + field + "\r\n";
      plan.tunnel_proxy = "proxy " + connect_host + ":" + std::to_string(connect_port);
    } else {
      forward_prefix = "http://" + authority;
      forward_field = field;
    }
  }
  if (const auto address = parse_numeric_address(connect_host, connect_port))
    addresses.assign({*address}, TimePoint::max());
  return {};
}

EndpointSet::EndpointSet(const HttpEndpoint& home, Network& network) : network_(network) {
  endpoints_.push_back(std::make_unique<Endpoint>(home));
  // Authorities that cannot be read were reported when the engine was made.
  static_cast<void>(endpoints_.back()->prepare(network).ok());
}

Result<Endpoint*> EndpointSet::find_or_add(const HttpEndpoint& target, TimePoint now) {
  for (const auto& endpoint : endpoints_) {
    if (!is_same(endpoint->target, target)) continue;
    endpoint->used_at = now;
    return endpoint.get();
  }
  if (endpoints_.size() >= kMaxEndpoints) {
    auto oldest = endpoints_.end();
    for (auto entry = endpoints_.begin() + 1; entry != endpoints_.end(); ++entry) {
      const bool is_free = (*entry)->users == 0 && !(*entry)->lookup.is_running();
      if (is_free && (oldest == endpoints_.end() || (*entry)->used_at < (*oldest)->used_at))
        oldest = entry;
    }
    if (oldest == endpoints_.end())
      return Status(Code::kExhausted, "redirected to too many hosts at once");
    endpoints_.erase(oldest);
  }
  auto added = std::make_unique<Endpoint>(target);
  HEADRACE_TRY(added->prepare(network_));
  endpoints_.push_back(std::move(added));
  endpoints_.back()->used_at = now;
  return endpoints_.back().get();
}

void EndpointSet::abandon_lookups() noexcept {
  for (const auto& endpoint : endpoints_) endpoint->lookup.abandon();
}

}  // namespace headrace::transfer
