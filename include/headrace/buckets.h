#pragma once
/// \file
/// The buckets of an owner: an S3 account, a Google project, an Azure storage account (which calls
/// them containers).
///
/// Place: src/store/. Threads: any.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/environment.h"
#include "headrace/status.h"
#include "headrace/store.h"

namespace headrace {

struct BucketInfo {
  std::string name;
  std::string url;                  ///< As open_store() takes it.
  std::int64_t created_unix_s = 0;  ///< 0 when unknown; Azure does not tell.
};

/// Whether the URL names an owner of buckets and no bucket: "s3://", "gs://", "az://",
/// "az://account".
bool is_bucket_owner(std::string_view url) noexcept;

/// In the order in which the service tells them. `options.url`: is_bucket_owner(). "gs://" is the
/// project of the credentials, or GOOGLE_CLOUD_PROJECT; "az://" the account that the environment
/// names. Blocks. Errors: those of open_store() and Store::list(); kInvalidArgument (no project, no
/// account); kUnsupported (another URL; more than 1,000 buckets with Google's HMAC keys).
Result<std::vector<BucketInfo>> list_buckets(const StoreOptions& options,
                                             const Environment& environment,
                                             const CallOptions& call = {});

}  // namespace headrace
