#include "headrace/buckets.h"
#include "store/s3/s3_buckets.h"
#include "store/service_client.h"

namespace headrace {

Result<std::vector<BucketInfo>> list_buckets(const StoreOptions& options,
                                             const Environment& environment,
                                             const CallOptions& call) {
  const std::string scheme = options.url.substr(0, options.url.find(':'));
  if (scheme != "s3" ||
      options.url.find_first_not_of('/', scheme.size() + 1) != std::string::npos) {
    return Status(Code::kUnsupported, options.url + ": buckets can be listed of s3:// only");
  }
  const StoreUrl url{.scheme = scheme, .bucket = {}, .path = {}, .root = "s3://"};
  return s3::list_buckets(options, environment, create_service_client(options, url, environment),
                          call);
}

}  // namespace headrace
