#pragma once
/// \file
/// The buckets that a credential owns.
///
/// Place: src/store/. Threads: any.
#include <cstdint>
#include <string>
#include <vector>

#include "headrace/environment.h"
#include "headrace/status.h"
#include "headrace/store.h"

namespace headrace {

struct BucketInfo {
  std::string name;
  std::int64_t created_unix_s = 0;  ///< 0 when unknown.
};

/// In the order in which the service tells them. `options.url` is its scheme, "s3://", without a
/// bucket. Blocks. Errors: those of open_store() and Store::list(); kUnsupported (another scheme:
/// what it would list belongs to a project or an account that its URL does not name).
Result<std::vector<BucketInfo>> list_buckets(const StoreOptions& options,
                                             const Environment& environment,
                                             const CallOptions& call = {});

}  // namespace headrace
