#include "store/transfer/endpoint.h"

#include <algorithm>
#include <utility>

namespace headrace::transfer {
namespace {

bool is_same(const HttpEndpoint& left, const HttpEndpoint& right) {
  return left.port == right.port && left.use_tls == right.use_tls && left.host == right.host;
}

}  // namespace

Endpoint::Endpoint(HttpEndpoint target_in)
    : target(std::move(target_in)), connect_host(target.host), connect_port(target.port) {
  if (const auto address = parse_numeric_address(connect_host, connect_port))
    addresses.assign({*address}, TimePoint::max());
}

EndpointSet::EndpointSet(const HttpEndpoint& home) {
  endpoints_.push_back(std::make_unique<Endpoint>(home));
}

Endpoint* EndpointSet::find_or_add(const HttpEndpoint& target, TimePoint now) {
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
    if (oldest == endpoints_.end()) return nullptr;
    endpoints_.erase(oldest);
  }
  endpoints_.push_back(std::make_unique<Endpoint>(target));
  endpoints_.back()->used_at = now;
  return endpoints_.back().get();
}

void EndpointSet::abandon_lookups() noexcept {
  for (const auto& endpoint : endpoints_) endpoint->lookup.abandon();
}

}  // namespace headrace::transfer
