#pragma once
/// \file
/// The buckets of a project: a call to the service, not to a bucket.
///
/// Threads: any.
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "auth/web_client.h"
#include "headrace/buckets.h"

namespace headrace::gcs {

/// As headrace::list_buckets(); `web` fetches tokens.
Result<std::vector<BucketInfo>> list_buckets(const StoreOptions& options,
                                             const Environment& environment,
                                             std::shared_ptr<auth::WebClient> web,
                                             const CallOptions& call);

/// One page of the buckets of a project. `next` is empty on the last one.
struct BucketPage {
  std::vector<BucketInfo> buckets;
  std::string next;
};

/// Reads what the JSON API answers to a listing of buckets. Errors: kCorrupt.
Result<BucketPage> parse_bucket_page(std::string_view body);
/// Reads a ListAllMyBucketsResult of the XML API, which has no pages. Errors: kCorrupt;
/// kUnsupported (as many as it tells at most: there may be more).
Result<std::vector<BucketInfo>> parse_all_buckets(std::string_view body);

}  // namespace headrace::gcs
