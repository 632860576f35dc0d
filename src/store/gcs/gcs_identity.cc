#include "auth/google_tokens.h"
#include "store/gcs/gcs_config.h"
#include "store/identity.h"

namespace headrace::gcs {
namespace {

const char* kind_of(const auth::GoogleIdentity& identity) {
  switch (identity.kind) {
    case auth::GoogleIdentity::Kind::kServiceAccount:
      return "service account";
    case auth::GoogleIdentity::Kind::kAuthorizedUser:
      return "user";
    case auth::GoogleIdentity::Kind::kExternalAccount:
      return "workload identity";
    case auth::GoogleIdentity::Kind::kImpersonated:
      return "impersonated service account";
    case auth::GoogleIdentity::Kind::kMachine:
      return "instance";
  }
  return "?";
}

/// The account that the metadata server or an impersonation URL names.
std::string account_of(const auth::GoogleIdentity& identity, const IdentityRequest& request) {
  if (!identity.client_email.empty()) return identity.client_email;
  constexpr std::string_view kMarker = "/serviceAccounts/";
  const std::size_t at = identity.impersonation_url.find(kMarker);
  if (at != std::string::npos) {
    const std::string rest = identity.impersonation_url.substr(at + kMarker.size());
    return rest.substr(0, rest.find(':'));
  }
  if (identity.kind != auth::GoogleIdentity::Kind::kMachine || request.web == nullptr) return {};
  auth::WebRequest ask;
  ask.url = "http://" + identity.metadata_host +
            "/computeMetadata/v1/instance/service-accounts/default/email";
  ask.headers = {{"metadata-flavor", "Google"}};
  ask.is_local = true;
  auto answer = request.web->fetch(ask, request.options.call.stop);
  return answer && answer->status == 200 ? answer->body : std::string();
}

}  // namespace

Status identify(const IdentityRequest& request, Identity& out) {
  auto settings = auth::resolve_google_settings(request.environment, request.read_file);
  if (!settings) {
    out.problem = settings.error().message();
    return {};
  }
  HEADRACE_TRY_ASSIGN(const GcsConfig config,
                      make_gcs_config(request.store, request.url, *settings));
  const std::string endpoint =
      (config.endpoint.use_tls ? "https://" : "http://") + config.host_field;
  std::string source = config.is_emulator ? "STORAGE_EMULATOR_HOST" : "default";
  if (!request.store.endpoint.empty()) source = "endpoint option";
  out.settings = {{"endpoint", endpoint, source}, {"project", settings->project, ""}};
  out.searched = settings->searched;
  if (request.store.anonymous || config.is_emulator) {
    out.credential = "anonymous";
    return {};
  }
  out.credential_source = settings->credentials_source;
  if (settings->hmac) {
    out.credential = "keys";
    out.id = auth::masked_id(settings->hmac->access_id);
    return {};
  }
  if (!settings->identity) {
    out.problem = settings->missing_credentials().message();
    return {};
  }
  out.credential = kind_of(*settings->identity);
  out.id = account_of(*settings->identity, request);
  if (request.web == nullptr) return {};
  auto token = auth::fetch_google_token(*settings->identity,
                                        {request.web, request.read_file, request.store.clock},
                                        request.options.call.stop);
  if (token) {
    out.expires = token->expires;
  } else {
    out.problem = token.error().message();
  }
  return {};
}

}  // namespace headrace::gcs
