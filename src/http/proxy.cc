// curl's rules, since people set these variables for curl: names in lower case win, entries of
// NO_PROXY match a name and all below it, the scheme of a proxy may be missing. Kinds of proxies
// that curl knows beyond http:// are errors.
//
// No message may contain a proxy's user or password: they are cut off before the rest is parsed.
#include "http/proxy.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/base64.h"
#include "base/strings.h"
#include "http/fields.h"
#include "http/uri.h"

namespace headrace::http {
namespace {

struct Address {
  std::array<unsigned char, 16> bytes{};
  std::size_t size_bytes = 0;
};

std::optional<Address> parse_address(std::string_view text) {
  if (text.size() > 2 && text.front() == '[' && text.back() == ']')
    text = text.substr(1, text.size() - 2);
  const std::string copy(text);
  Address address;
  if (::inet_pton(AF_INET, copy.c_str(), address.bytes.data()) == 1) {
    address.size_bytes = 4;
  } else if (::inet_pton(AF_INET6, copy.c_str(), address.bytes.data()) == 1) {
    address.size_bytes = 16;
  } else {
    return std::nullopt;
  }
  return address;
}

bool is_within(const Address& address, const Address& network, std::size_t prefix_bits) {
  if (address.size_bytes != network.size_bytes || prefix_bits > network.size_bytes * 8)
    return false;
  for (std::size_t bit = 0; bit < prefix_bits; ++bit) {
    const auto mask = static_cast<unsigned char>(0x80U >> (bit % 8));
    if ((address.bytes[bit / 8] & mask) != (network.bytes[bit / 8] & mask)) return false;
  }
  return true;
}

}  // namespace

bool names_host(std::string_view entry, std::string_view host, std::uint16_t port) {
  if (entry == "*") return true;
  std::size_t prefix_bits = 128;
  const std::size_t slash = entry.rfind('/');
  if (slash != std::string_view::npos) {
    const auto bits = parse_decimal<std::uint64_t>(entry.substr(slash + 1));
    if (!bits || *bits > 128) return false;
    prefix_bits = static_cast<std::size_t>(*bits);
    entry = entry.substr(0, slash);
  } else {
    // One colon, or one behind a bracket, starts a port; more are an IPv6 address.
    const std::size_t colon = entry.rfind(':');
    const bool is_v6 = entry.find(':') != colon && entry.find(']') == std::string_view::npos;
    const bool is_inside =
        entry.find(']', colon == std::string_view::npos ? 0 : colon) != std::string_view::npos;
    if (colon != std::string_view::npos && !is_v6 && !is_inside) {
      if (parse_decimal<std::uint64_t>(entry.substr(colon + 1)) != port) return false;
      entry = entry.substr(0, colon);
    }
  }
  const auto address = parse_address(host);
  const auto network = parse_address(entry);
  // An address never matches a name, or "10.0.0.1" would be "below" the entry "0.0.1".
  if (address || network || slash != std::string_view::npos) {
    if (!address || !network) return false;
    if (slash == std::string_view::npos) prefix_bits = network->size_bytes * 8;
    return is_within(*address, *network, prefix_bits);
  }
  while (entry.starts_with('.')) entry.remove_prefix(1);
  while (host.ends_with('.')) host.remove_suffix(1);
  if (entry.empty() || entry.size() > host.size()) return false;
  if (!equals_ignoring_case(host.substr(host.size() - entry.size()), entry)) return false;
  return host.size() == entry.size() || host[host.size() - entry.size() - 1] == '.';
}

const Proxy* ProxyRules::find(std::string_view host, std::uint16_t port, bool use_tls) const {
  const std::optional<Proxy>& proxy = use_tls ? for_https : for_http;
  if (!proxy) return nullptr;
  const bool is_direct = std::any_of(direct.begin(), direct.end(), [&](const std::string& entry) {
    return names_host(entry, host, port);
  });
  return is_direct ? nullptr : &*proxy;
}

Result<Proxy> parse_proxy(std::string_view text) {
  Proxy proxy;
  const std::size_t scheme_end = text.find("://");
  std::string_view rest = text;
  if (scheme_end != std::string_view::npos) {
    const std::string scheme = to_lower(text.substr(0, scheme_end));
    if (scheme != "http")
      return Status(Code::kUnsupported,
                    "a proxy of the kind " + scheme + ":// is not supported, only http://");
    rest = text.substr(scheme_end + 3);
  }
  if (const std::size_t at = rest.rfind('@'); at != std::string_view::npos) {
    const std::string_view user = rest.substr(0, at);
    const std::size_t colon = user.find(':');
    const auto name = decode(user.substr(0, colon));
    const auto password =
        decode(colon == std::string_view::npos ? std::string_view() : user.substr(colon + 1));
    if (!name || !password)
      return Status(Code::kInvalidArgument, "the user name or password of the proxy is malformed");
    proxy.authorization = "Basic " + base64(*name + ":" + *password);
    rest.remove_prefix(at + 1);
  }
  HEADRACE_TRY_ASSIGN(const HttpUrl url, parse_http_url("http://" + std::string(rest)));
  proxy.host = url.host;
  const std::string_view authority = rest.substr(0, rest.find('/'));
  const bool has_port = authority.rfind(':') != std::string_view::npos &&
                        (authority.rfind(']') == std::string_view::npos ||
                         authority.rfind(']') < authority.rfind(':'));
  // parse_http_url() would say 80 where none is written; curl says 1080.
  proxy.port = has_port ? url.port : kDefaultProxyPort;
  return proxy;
}

Result<ProxyRules> resolve_proxy_rules(const std::string& setting, const Environment& environment) {
  ProxyRules rules;
  if (setting == "none") return rules;
  if (!setting.empty()) {
    HEADRACE_TRY_ASSIGN(rules.for_http, parse_proxy(setting));
    rules.for_https = rules.for_http;
    return rules;
  }
  const auto find = [&](std::initializer_list<const char*> names,
                        std::optional<Proxy>& out) -> Status {
    for (const char* name : names) {
      const std::string text = environment.get(name);
      if (text.empty()) continue;
      auto proxy = parse_proxy(text);
      if (!proxy) return std::move(proxy).error().annotate(name);
      out = *std::move(proxy);
      return {};
    }
    return {};
  };
  HEADRACE_TRY(find({"http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"}, rules.for_http));
  HEADRACE_TRY(find({"https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"}, rules.for_https));
  std::string direct = environment.get("no_proxy");
  if (direct.empty()) direct = environment.get("NO_PROXY");
  rules.direct = split_hosts(direct);
  return rules;
}

std::vector<std::string> split_hosts(std::string_view list) {
  std::vector<std::string> entries;
  std::size_t begin = 0;
  while ((begin = list.find_first_not_of(", \t", begin)) != std::string_view::npos) {
    const std::size_t end = std::min(list.find_first_of(", \t", begin), list.size());
    entries.push_back(to_lower(std::string(list.substr(begin, end - begin))));
    begin = end;
  }
  return entries;
}

}  // namespace headrace::http
