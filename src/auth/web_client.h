#pragma once
/// \file
/// WebClient: single small HTTP(S) exchanges with token and metadata services. Not for data.
///
/// Threads: fetch() from any thread; it blocks.
#include <chrono>
#include <memory>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "headrace/environment.h"
#include "headrace/status.h"
#include "net/resolver.h"

namespace headrace::auth {

struct WebRequest {
  std::string method = "GET";
  std::string url;  ///< http(s)://host[:port]/path?query, escaped.
  std::vector<std::pair<std::string, std::string>> headers;
  std::string body;
  std::chrono::milliseconds connect_timeout{1'000};
  std::chrono::milliseconds timeout{5'000};  ///< Whole exchange.
  bool is_local = false;  ///< A service of this machine, by whatever name: never through a proxy.
};

struct WebAnswer {
  int status = 0;
  std::vector<std::pair<std::string, std::string>> headers;  ///< Names in lower case.
  std::string body;                                          ///< At most 1 MiB.
};

class WebClient {
 public:
  virtual ~WebClient() = default;
  /// One exchange, no retries, redirects not followed. Any HTTP status is a result. Errors:
  /// kUnavailable (refused, reset, time out, TLS, unknown host), kCancelled, kInvalidArgument
  /// (URL), kCorrupt (not HTTP).
  virtual Result<WebAnswer> fetch(const WebRequest& request, std::stop_token stop) = 0;
};

struct WebClientOptions {
  std::string proxy;      ///< As StoreOptions::proxy.
  std::string ca_bundle;  ///< As StoreOptions::ca_bundle.
  HostResolver resolver;  ///< As StoreOptions::resolver.
};

/// The one that uses sockets. Proxies by option and environment (http::resolve_proxy_rules()), but
/// never for services of this machine (WebRequest::is_local, loopback and link-local addresses).
/// Authorities: ca_bundle, SSL_CERT_FILE, SSL_CERT_DIR, else the system's. What is wrong with these
/// is fetch()'s error.
std::shared_ptr<WebClient> create_web_client(const Environment& environment,
                                             const WebClientOptions& options = {});

}  // namespace headrace::auth
