#include "auth/aws_fetch.h"
#include "store/identity.h"
#include "store/s3/s3_config.h"

namespace headrace::s3 {
namespace {

std::string or_default(const std::string& text) { return text.empty() ? "default" : text; }

/// Settings as make_s3_config() decides them.
Status fill_settings(const IdentityRequest& request, const auth::AwsSettings& settings,
                     Identity& out) {
  StoreOptions unsigned_options = request.store;
  unsigned_options.anonymous = true;  // missing credentials are no error here
  HEADRACE_TRY_ASSIGN(const S3Config config,
                      make_s3_config(unsigned_options, request.url, settings));
  const std::string endpoint =
      (config.endpoint.use_tls ? "https://" : "http://") + config.host_field;
  const bool is_path_style = !config.base_path.empty();
  out.settings = {
      {"endpoint", endpoint,
       request.store.endpoint.empty() ? or_default(settings.endpoint.source) : "endpoint option"},
      {"region", config.region,
       request.store.region.empty() ? or_default(settings.region.source) : "region option"},
      {"addressing", is_path_style ? "path" : "virtual host",
       request.store.path_style ? "path_style option"
                                : or_default(settings.addressing_style.source)},
      {"profile", settings.profile.text, settings.profile.source}};
  return {};
}

}  // namespace

Status identify(const IdentityRequest& request, Identity& out) {
  auto resolved = auth::resolve_aws_settings(request.environment, request.read_file);
  if (!resolved) {
    HEADRACE_TRY(fill_settings(request, auth::AwsSettings(), out));
    if (request.store.anonymous) {
      out.credential = "anonymous";
    } else {
      out.problem = resolved.error().message();
    }
    return {};
  }
  const auth::AwsSettings& settings = *resolved;
  HEADRACE_TRY(fill_settings(request, settings, out));
  if (request.store.anonymous) {
    out.credential = "anonymous";
    return {};
  }
  out.searched = settings.searched;
  out.credential = auth::source_name(settings.plan.kind);
  out.credential_source = settings.plan.source;
  if (settings.plan.kind == auth::AwsSource::kNone) {
    out.problem = settings.missing_credentials().message();
    return {};
  }
  if (!settings.credentials && (!request.options.fetch || request.web == nullptr)) return {};
  const auth::AwsWorld world =
      auth::local_aws_world(request.web, request.environment, request.store.clock);
  const std::stop_token stop = request.options.call.stop;
  auto found = auth::fetch_credentials(settings.plan, settings.services, world, stop);
  if (!found) {
    if (found.error().code() == Code::kCancelled) return std::move(found).error();
    out.problem = found.error().message();
    return {};
  }
  out.id = auth::masked_id(found->access_key_id);
  out.expires = found->expires;
  // A store of one's own has no STS, and AWS's knows nothing of its keys.
  const bool has_sts = settings.endpoint.text.empty() && request.store.endpoint.empty();
  if (!request.options.check || request.web == nullptr || !has_sts) return {};
  auto name = auth::caller_identity(*found, settings.services, world, stop);
  out.checked_name = name ? *name : "unknown (" + std::string(name.error().message()) + ")";
  return {};
}

}  // namespace headrace::s3
