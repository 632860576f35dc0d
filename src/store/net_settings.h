#pragma once
/// \file
/// How a store reaches the network besides its endpoint: proxies and certificate authorities, from
/// options and environment. Pure.
#include "headrace/environment.h"
#include "headrace/status.h"
#include "headrace/store.h"
#include "http/proxy.h"
#include "net/tls.h"

namespace headrace {

struct NetSettings {
  http::ProxyRules proxies;
  TlsOptions tls;
};

/// Uses proxy, tls_verify, ca_bundle and the scheme of url. Variables: those of
/// http::resolve_proxy_rules(), AWS_CA_BUNDLE (s3:// only), SSL_CERT_FILE, SSL_CERT_DIR. Errors:
/// those of parse_proxy().
Result<NetSettings> resolve_net_settings(const StoreOptions& options,
                                         const Environment& environment);

}  // namespace headrace
