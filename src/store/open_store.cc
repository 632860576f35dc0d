#include <filesystem>
#include <system_error>

#include "headrace/store.h"
#include "headrace/store_url.h"
#include "http/uri.h"
#include "store/azure/azure_store.h"
#include "store/file/file_store.h"
#include "store/gcs/gcs_store.h"
#include "store/hf/hf_store.h"
#include "store/memory/memory_store.h"
#include "store/s3/s3_store.h"
#include "store/service_client.h"
#include "store/url.h"
#include "store/web/web_store.h"

namespace headrace {
namespace {

Status unsupported(const StoreUrl& url) {
  std::string message =
      http::without_secrets(url.root) + ": the scheme \"" + url.scheme +
      "\" is not supported; use s3://bucket/prefix, file:///directory, a plain "
      "path, gs://bucket/prefix, az://account/container/prefix, https://host/path, "
      "hf://datasets/ORG/NAME, or memory://name";
  return Status(Code::kUnsupported, std::move(message));
}

Result<std::unique_ptr<Store>> open_driver(const StoreOptions& options,
                                           const Environment& environment) {
  HEADRACE_TRY_ASSIGN(const StoreUrl url, parse_store_url(options.url));
  HEADRACE_TRY(check_store_url(options.url));
  if (azure::is_azure_url(url)) {
    return azure::open_azure_store(options, url, environment,
                                   create_service_client(options, url, environment));
  }
  if (url.scheme == "s3") {
    return s3::open_s3_store(options, url, environment,
                             create_service_client(options, url, environment));
  }
  if (url.scheme == "gs" || url.scheme == "gcs") {
    return gcs::open_gcs_store(options, url, environment,
                               create_service_client(options, url, environment));
  }
  if (url.scheme == "hf") {
    return hf::open_hf_store(options, url, environment,
                             create_service_client(options, url, environment));
  }
  if (url.scheme == "http" || url.scheme == "https")
    return web::open_web_store(options, environment);
  if (url.scheme.empty() || url.scheme == "file") return open_file_store(options);
  if (url.scheme == "memory") return open_memory_store(options);
  return unsupported(url);
}

}  // namespace

Status check_store_url(std::string_view text) {
  return refuse_mistyped(text, [](const std::string& path) {
    std::error_code unknown;
    return std::filesystem::exists(path, unknown);
  });
}

Result<std::unique_ptr<Store>> open_store(const StoreOptions& options,
                                          const Environment& environment) {
  HEADRACE_TRY_ASSIGN(auto store, open_driver(options, environment));
  HEADRACE_TRY(store->check_settings(options.settings).annotate(store->url()));
  return store;
}

}  // namespace headrace
