#include "headrace/store.h"
#include "store/azure/azure_store.h"
#include "store/file/file_store.h"
#include "store/memory/memory_store.h"
#include "store/s3/s3_store.h"
#include "store/url.h"

namespace headrace {
namespace {

Status unsupported(const StoreUrl& url) {
  std::string message = url.root + ": the scheme \"" + url.scheme +
                        "\" is not supported; use s3://bucket/prefix, file:///directory, a plain "
                        "path, or memory://name";
  if (url.scheme == "gs" || url.scheme == "gcs") {
    message +=
        ". Google's buckets also speak S3: s3://bucket with endpoint "
        "https://storage.googleapis.com and HMAC keys";
  } else if (url.scheme == "az" || url.scheme == "abfs" || url.scheme == "abfss" ||
             url.scheme == "wasb") {
    message += ". Azure Blob Storage is planned";
  } else if (url.scheme == "http" || url.scheme == "https") {
    message +=
        ". An S3 server's address belongs into endpoint= or AWS_ENDPOINT_URL_S3, the bucket into "
        "s3://bucket";
  }
  return Status(Code::kUnsupported, std::move(message));
}

}  // namespace

Result<std::unique_ptr<Store>> open_store(const StoreOptions& options,
                                          const Environment& environment) {
  HEADRACE_TRY_ASSIGN(const StoreUrl url, parse_store_url(options.url));
  if (azure::is_azure_url(url)) {
    return azure::open_azure_store(options, url, environment, nullptr);
  }
  if (url.scheme == "s3") return s3::open_s3_store(options, url, environment);
  if (url.scheme.empty() || url.scheme == "file") return open_file_store(options);
  if (url.scheme == "memory") return open_memory_store(options);
  return unsupported(url);
}

}  // namespace headrace
