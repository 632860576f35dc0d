#include "store/net_settings.h"

#include <string>

namespace headrace {

Result<NetSettings> resolve_net_settings(const StoreOptions& options,
                                         const Environment& environment) {
  NetSettings settings;
  HEADRACE_TRY_ASSIGN(settings.proxies, http::resolve_proxy_rules(options.proxy, environment));
  settings.tls.verify = options.tls_verify;
  auto& authorities = settings.tls.authorities;
  if (!options.ca_bundle.empty()) {
    authorities.push_back(options.ca_bundle);
    return settings;
  }
  const std::string for_aws = environment.get("AWS_CA_BUNDLE");
  if (!for_aws.empty() && options.url.starts_with("s3://")) {
    authorities.push_back(for_aws);
    return settings;
  }
  for (const char* name : {"SSL_CERT_FILE", "SSL_CERT_DIR"}) {
    if (std::string path = environment.get(name); !path.empty())
      authorities.push_back(std::move(path));
  }
  return settings;
}

}  // namespace headrace
