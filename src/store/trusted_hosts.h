#pragma once
/// \file
/// TrustedHosts: where a redirect may take credentials: to the endpoint's own host and names below
/// it, and to hosts that the user has named. Pure.
#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "http/fields.h"
#include "http/proxy.h"
#include "store/http_protocol.h"

namespace headrace {

class TrustedHosts {
 public:
  TrustedHosts() = default;
  /// `named`: StoreOptions::trusted_hosts.
  TrustedHosts(std::string own, std::string_view named)
      : own_(std::move(own)), named_(http::split_hosts(named)) {}

  bool is_own(std::string_view host) const {
    if (host.size() <= own_.size()) return http::equals_ignoring_case(host, own_);
    // Siblings are none: the parent of a host may be a suffix under which everybody has names.
    const std::string_view end = host.substr(host.size() - own_.size());
    return !own_.empty() && host[host.size() - own_.size() - 1] == '.' &&
           http::equals_ignoring_case(end, own_);
  }
  bool is_named(const HttpEndpoint& to) const {
    return std::any_of(named_.begin(), named_.end(), [&](const std::string& entry) {
      return http::names_host(entry, to.host, to.port);
    });
  }

 private:
  std::string own_;
  std::vector<std::string> named_;
};

}  // namespace headrace
