#pragma once
/// \file
/// The buckets of an account: a call to the service, not to a bucket.
///
/// Threads: any.
#include <memory>
#include <vector>

#include "auth/web_client.h"
#include "headrace/buckets.h"

namespace headrace::s3 {

/// As headrace::list_buckets(); `web` fetches credentials.
Result<std::vector<BucketInfo>> list_buckets(const StoreOptions& options,
                                             const Environment& environment,
                                             std::shared_ptr<auth::WebClient> web,
                                             const CallOptions& call);

}  // namespace headrace::s3
