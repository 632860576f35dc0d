#pragma once
/// \file
/// The client that a store's credentials are fetched with.
#include <memory>

#include "auth/web_client.h"
#include "headrace/store.h"
#include "store/url.h"

namespace headrace {

/// With the store's proxy, resolver and authorities; AWS_CA_BUNDLE holds for AWS's services.
inline std::shared_ptr<auth::WebClient> create_service_client(const StoreOptions& options,
                                                              const StoreUrl& url,
                                                              const Environment& environment) {
  auth::WebClientOptions how{options.proxy, options.ca_bundle, options.resolver};
  if (how.ca_bundle.empty() && url.scheme == "s3") how.ca_bundle = environment.get("AWS_CA_BUNDLE");
  return auth::create_web_client(environment, how);
}

}  // namespace headrace
