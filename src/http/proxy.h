#pragma once
/// \file
/// Which HTTP proxy a connection goes through: the rules of curl over HTTP_PROXY, HTTPS_PROXY,
/// ALL_PROXY and NO_PROXY. Pure.
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/environment.h"
#include "headrace/status.h"

namespace headrace::http {

/// curl's default port of proxies.
constexpr std::uint16_t kDefaultProxyPort = 1080;

struct Proxy {
  std::string host;
  std::uint16_t port = kDefaultProxyPort;
  std::string authorization;  ///< Value of Proxy-Authorization, a secret; empty: none.
};

struct ProxyRules {
  std::optional<Proxy> for_http;    ///< Targets without TLS.
  std::optional<Proxy> for_https;   ///< Targets with TLS.
  std::vector<std::string> direct;  ///< Entries of NO_PROXY, lower case.

  /// The proxy for a target, nullptr: connect directly.
  const Proxy* find(std::string_view host, std::uint16_t port, bool use_tls) const;
};

/// The entries of NO_PROXY, or of another list in its form, in lower case.
std::vector<std::string> split_hosts(std::string_view list);

/// Whether an entry of NO_PROXY names the host: "*", a name (and all below it, with or without a
/// leading dot), an address, a network in CIDR form; each with or without ":port".
bool names_host(std::string_view entry, std::string_view host, std::uint16_t port);

/// "http://[user[:password]@]host[:port]", the scheme may be missing. Errors: kInvalidArgument,
/// kUnsupported (https, socks: the message has no credentials).
Result<Proxy> parse_proxy(std::string_view text);

/// `setting`: StoreOptions::proxy; "none" connects directly, empty asks the environment, in which
/// lower-case names win. Errors: those of parse_proxy(), with the variable's name.
Result<ProxyRules> resolve_proxy_rules(const std::string& setting, const Environment& environment);

}  // namespace headrace::http
