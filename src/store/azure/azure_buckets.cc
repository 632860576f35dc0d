// The service answers at the account's address without a container: the config of a container,
// whose name is then taken off the path.
#include "store/azure/azure_buckets.h"

#include <iterator>
#include <set>
#include <utility>

#include "auth/azure_settings.h"
#include "store/azure/azure_protocol.h"
#include "store/azure/azure_store.h"
#include "store/azure/azure_xml.h"
#include "store/transfer/transfer_engine.h"

namespace headrace::azure {
namespace {

/// The account that the environment names.
Result<std::string> account_of(const Environment& environment, const std::string& what) {
  std::string account = environment.get("AZURE_STORAGE_ACCOUNT");
  const std::string text = environment.get("AZURE_STORAGE_CONNECTION_STRING");
  if (account.empty() && !text.empty()) {
    auto parsed = auth::parse_azure_connection_string(text);
    if (!parsed)
      return std::move(parsed).error().annotate(
          "environment variable AZURE_STORAGE_CONNECTION_STRING");
    account = parsed->account;
  }
  if (!account.empty()) return account;
  return Status(Code::kInvalidArgument,
                what +
                    ": of which storage account? Name it (az://ACCOUNT), or set "
                    "AZURE_STORAGE_ACCOUNT");
}

}  // namespace

Result<std::vector<BucketInfo>> list_containers(const StoreOptions& options, const StoreUrl& url,
                                                const Environment& environment,
                                                std::shared_ptr<auth::WebClient> web,
                                                const CallOptions& call) {
  std::string account = url.bucket;
  if (account.empty()) {
    HEADRACE_TRY_ASSIGN(account, account_of(environment, "LIST the containers of " + url.root));
  }
  const std::string root = url.root + account;
  const StoreUrl any{
      .scheme = url.scheme, .bucket = account, .path = "container", .root = root + "/container"};
  HEADRACE_TRY_ASSIGN(AzureConfig config,
                      resolve_azure_config(options, any, environment, std::move(web)));
  config.root_url = root;
  config.container_path.resize(config.container_path.rfind('/') + 1);
  auto protocol = std::make_shared<AzureProtocol>(std::move(config));
  HEADRACE_TRY_ASSIGN(auto engine, TransferEngine::create(protocol, options, environment));
  std::vector<BucketInfo> buckets;
  std::set<std::string> markers;
  std::string marker;
  do {
    HttpCall http;
    http.what = "LIST the containers of " + root;
    http.query = {{"comp", "list"}};
    if (!marker.empty()) http.query.emplace_back("marker", marker);
    HEADRACE_TRY_ASSIGN(ContainerPage page, engine->call(http, call, [](const HttpAnswer& answer) {
      return parse_containers(answer.body);
    }));
    for (std::string& name : page.names) {
      std::string whole = root + "/" + name;
      buckets.push_back({std::move(name), std::move(whole)});
    }
    marker = std::move(page.next);
    if (!marker.empty() && !markers.insert(marker).second)
      return Status(Code::kCorrupt, http.what + ": the store continues twice at the same place");
  } while (!marker.empty());
  return buckets;
}

}  // namespace headrace::azure
