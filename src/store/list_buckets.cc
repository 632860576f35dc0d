#include "headrace/buckets.h"
#include "store/azure/azure_buckets.h"
#include "store/gcs/gcs_buckets.h"
#include "store/s3/s3_buckets.h"
#include "store/service_client.h"

namespace headrace {
namespace {

enum class Owner : std::uint8_t { kNone, kS3, kGoogle, kAzure };

struct OwnerUrl {
  Owner owner = Owner::kNone;
  std::string scheme;
  std::string account;  ///< Azure; may be empty.
};

OwnerUrl parse_owner(std::string_view url) {
  constexpr std::string_view kMark = "://";
  const std::size_t end = std::min(url.find(kMark), url.size());
  OwnerUrl out;
  out.scheme = url.substr(0, end);
  std::string_view rest = url.substr(std::min(end + kMark.size(), url.size()));
  if (end == url.size()) return out;
  while (rest.ends_with('/')) rest.remove_suffix(1);
  const bool is_azure = out.scheme == "az" || out.scheme == "azure";
  if (is_azure && rest.find_first_of("/?#@") == std::string_view::npos) {
    out.owner = Owner::kAzure;
    out.account = rest;
  } else if (rest.empty() && out.scheme == "s3") {
    out.owner = Owner::kS3;
  } else if (rest.empty() && (out.scheme == "gs" || out.scheme == "gcs")) {
    out.owner = Owner::kGoogle;
  }
  return out;
}

}  // namespace

bool is_bucket_owner(std::string_view url) noexcept {
  return parse_owner(url).owner != Owner::kNone;
}

Result<std::vector<BucketInfo>> list_buckets(const StoreOptions& options,
                                             const Environment& environment,
                                             const CallOptions& call) {
  const OwnerUrl parsed = parse_owner(options.url);
  StoreUrl url{.scheme = parsed.scheme, .bucket = {}, .path = {}, .root = parsed.scheme + "://"};
  auto web = create_service_client(options, url, environment);
  switch (parsed.owner) {
    case Owner::kS3:
      return s3::list_buckets(options, environment, std::move(web), call);
    case Owner::kGoogle:
      return gcs::list_buckets(options, environment, std::move(web), call);
    case Owner::kAzure:
      url.bucket = parsed.account;
      return azure::list_containers(options, url, environment, std::move(web), call);
    case Owner::kNone:
      break;
  }
  return Status(Code::kUnsupported,
                options.url + ": buckets can be listed of s3://, gs:// and az://ACCOUNT");
}

}  // namespace headrace
