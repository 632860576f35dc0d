#pragma once
/// \file
/// The containers of a storage account: a call to the service, not to a container.
///
/// Threads: any.
#include <memory>
#include <vector>

#include "auth/web_client.h"
#include "headrace/buckets.h"
#include "store/url.h"

namespace headrace::azure {

/// As headrace::list_buckets(). `url` has the account as its bucket; empty: that of the
/// environment. `web` fetches tokens.
Result<std::vector<BucketInfo>> list_containers(const StoreOptions& options, const StoreUrl& url,
                                                const Environment& environment,
                                                std::shared_ptr<auth::WebClient> web,
                                                const CallOptions& call);

}  // namespace headrace::azure
