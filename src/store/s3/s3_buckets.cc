// The service answers at the endpoint without a bucket: the config of a bucket in the path, whose
// last component is then taken off.
#include "store/s3/s3_buckets.h"

#include <iterator>
#include <utility>

#include "store/s3/s3_protocol.h"
#include "store/s3/s3_store.h"
#include "store/s3/s3_xml.h"
#include "store/transfer/transfer_engine.h"

namespace headrace::s3 {
namespace {

Result<S3Config> service_config(const StoreOptions& options, const Environment& environment,
                                std::shared_ptr<auth::WebClient> web) {
  StoreOptions in_path = options;
  in_path.path_style = true;
  const StoreUrl any{.scheme = "s3", .bucket = "bucket", .path = {}, .root = "s3://"};
  HEADRACE_TRY_ASSIGN(S3Config config,
                      resolve_s3_config(in_path, any, environment, std::move(web)));
  config.base_path.resize(config.base_path.rfind('/'));
  config.bucket.clear();
  return config;
}

}  // namespace

Result<std::vector<BucketInfo>> list_buckets(const StoreOptions& options,
                                             const Environment& environment,
                                             std::shared_ptr<auth::WebClient> web,
                                             const CallOptions& call) {
  HEADRACE_TRY_ASSIGN(S3Config config, service_config(options, environment, std::move(web)));
  HEADRACE_TRY_ASSIGN(auto protocol, S3Protocol::create(std::move(config)));
  HEADRACE_TRY_ASSIGN(auto engine, TransferEngine::create(protocol, options, environment));
  std::vector<BucketInfo> buckets;
  std::string continuation;
  do {
    HttpCall http;
    http.what = "LIST the buckets of s3://";
    // S3 refuses a listing without pages to accounts with more than 10,000 buckets.
    http.query = {{"max-buckets", "1000"}};
    if (!continuation.empty()) http.query.emplace_back("continuation-token", continuation);
    HEADRACE_TRY_ASSIGN(BucketPage page, engine->call(http, call, [](const HttpAnswer& answer) {
      return parse_buckets(answer.body);
    }));
    for (BucketInfo& bucket : page.buckets) bucket.url = "s3://" + bucket.name;
    std::move(page.buckets.begin(), page.buckets.end(), std::back_inserter(buckets));
    const bool moves_on = page.continuation != continuation;
    continuation = moves_on ? std::move(page.continuation) : std::string();
  } while (!continuation.empty());
  return buckets;
}

}  // namespace headrace::s3
