#include "auth/azure_tokens.h"
#include "store/azure/azure_config.h"
#include "store/identity.h"

namespace headrace::azure {
namespace {

const char* kind_of(const auth::AzureIdentity& identity) {
  switch (identity.kind) {
    case auth::AzureIdentity::Kind::kClientSecret:
      return "application";
    case auth::AzureIdentity::Kind::kWorkload:
      return "workload identity";
    case auth::AzureIdentity::Kind::kAppService:
    case auth::AzureIdentity::Kind::kMachine:
      return "managed identity";
  }
  return "?";
}

/// Asks for one token, to see that it can be had and when it ends.
Status try_token(const IdentityRequest& request, const auth::AzureIdentity& identity,
                 Identity& out) {
  const Clock& clock = request.store.clock != nullptr ? *request.store.clock : system_clock();
  auto token = auth::fetch_azure_token(identity, *request.web, request.read_file, clock,
                                       request.options.call.stop);
  if (token) {
    out.expires = token->expires;
    return {};
  }
  if (token.error().code() == Code::kCancelled) return std::move(token).error();
  out.problem = token.error().message();
  return {};
}

}  // namespace

Status identify(const IdentityRequest& request, Identity& out) {
  HEADRACE_TRY_ASSIGN(const AzureLocation location, parse_azure_location(request.url));
  out.url = location.root_url;
  auto settings =
      auth::resolve_azure_settings(location.account, request.environment, request.read_file);
  if (!settings) {
    out.problem = settings.error().message();
    return {};
  }
  StoreOptions unsigned_options = request.store;
  unsigned_options.anonymous = true;  // missing credentials are no error here
  HEADRACE_TRY_ASSIGN(const AzureConfig config,
                      make_azure_config(unsigned_options, location, *settings, nullptr));
  std::string source = settings->endpoint.source.empty() ? "default" : settings->endpoint.source;
  if (!request.store.endpoint.empty()) source = "endpoint option";
  out.settings = {{"endpoint", config.origin, source}, {"account", config.account, "url"}};
  out.searched = settings->searched;
  out.credential_source = settings->credentials_source;
  if (request.store.anonymous) {
    out.credential = "anonymous";
    out.credential_source.clear();
  } else if (!location.sas.empty()) {
    out.credential = "sas";
    out.credential_source = "SAS in the store's URL";
  } else if (!settings->account_key.empty()) {
    out.credential = "account key";
    out.id = config.account;
  } else if (!settings->sas.empty()) {
    out.credential = "sas";
  } else if (settings->identity) {
    out.credential = kind_of(*settings->identity);
    out.id = auth::masked_id(settings->identity->client_id);
    if (request.options.fetch && request.web != nullptr)
      return try_token(request, *settings->identity, out);
  } else {
    out.problem = settings->missing_credentials().message();
  }
  return {};
}

}  // namespace headrace::azure
