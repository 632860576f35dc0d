#include "store/s3/s3_config.h"

#include "http/uri.h"
#include "store/loopback.h"

namespace headrace::s3 {
namespace {

/// A superset of S3's rules: other stores allow capitals and underscores, old buckets have up to
/// 255 characters.
bool is_bucket_name(std::string_view name) noexcept {
  if (name.empty() || name.size() > 255 || name == "." || name == "..") return false;
  for (char c : name) {
    const bool is_letter =
        (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    if (!is_letter && c != '-' && c != '.' && c != '_') return false;
  }
  return true;
}

/// May stand in a host name, under a wildcard certificate when `use_tls` (which covers no further
/// dot).
bool fits_host_name(std::string_view bucket, bool use_tls) noexcept {
  if (bucket.size() < 3 || bucket.size() > 63) return false;
  for (char c : bucket) {
    if ((c >= 'A' && c <= 'Z') || c == '_' || (c == '.' && use_tls)) return false;
  }
  return true;
}

/// Without a region the global name is asked: it resolves to the bucket's own region, whose answer
/// to a signature for another one says which it is.
std::string aws_endpoint(std::string_view bucket, const std::string& region, bool is_guess) {
  const std::string domain = region.starts_with("cn-") ? ".amazonaws.com.cn" : ".amazonaws.com";
  if (const std::string_view zone = express_zone(bucket); !zone.empty())
    return "https://s3express-" + std::string(zone) + "." + region + domain;
  return "https://s3" + (is_guess ? "" : "." + region) + domain;
}

}  // namespace

bool is_region_name(std::string_view region) noexcept {
  if (region.empty() || region.size() > 64) return false;
  for (char c : region) {
    if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
          c == '_'))
      return false;
  }
  return true;
}

std::string_view express_zone(std::string_view bucket) noexcept {
  constexpr std::string_view kSuffix = "--x-s3";
  if (!bucket.ends_with(kSuffix)) return {};
  bucket.remove_suffix(kSuffix.size());
  const std::size_t dashes = bucket.rfind("--");
  if (dashes == std::string_view::npos || dashes == 0) return {};
  return bucket.substr(dashes + 2);
}

Result<S3Config> make_s3_config(const StoreOptions& options, const StoreUrl& url,
                                const auth::AwsSettings& settings,
                                std::shared_ptr<auth::CredentialProvider> provider) {
  S3Config config;
  config.bucket = url.bucket;
  config.root_url = url.root;
  config.prefix = url.path.empty() ? "" : url.path + "/";
  if (!is_bucket_name(url.bucket))
    return bad_bucket_name(url, "letters, digits, dots, hyphens, underscores");
  config.region = !options.region.empty() ? options.region : settings.region.text;
  const bool is_region_guess = config.region.empty();
  if (is_region_guess) config.region = "us-east-1";
  if (!is_region_name(config.region))
    return Status(Code::kInvalidArgument, "\"" + config.region + "\" is not a region name");

  std::string endpoint = !options.endpoint.empty() ? options.endpoint : settings.endpoint.text;
  const std::string source =
      !options.endpoint.empty() ? "endpoint option" : settings.endpoint.source;
  config.is_aws = endpoint.empty();
  config.is_express = !express_zone(config.bucket).empty();
  if (config.is_aws) endpoint = aws_endpoint(config.bucket, config.region, is_region_guess);
  auto parsed = http::parse_http_url(endpoint);
  if (!parsed) return std::move(parsed).error().annotate(source);

  const bool is_virtual_asked =
      settings.addressing_style.text == "virtual" && settings.addressing_style.source.size() > 0;
  bool is_path_style = !config.is_aws && !is_virtual_asked;
  if (settings.addressing_style.text == "path") is_path_style = true;
  if (options.path_style) is_path_style = *options.path_style;
  const bool is_forced_virtual = options.path_style && !*options.path_style;
  if (!is_path_style && !fits_host_name(config.bucket, parsed->use_tls)) {
    if (is_forced_virtual) {
      return Status(
          Code::kInvalidArgument,
          url.root + ": the bucket's name does not fit into a host name; use path_style=True");
    }
    is_path_style = true;
  }
  config.is_loopback = !parsed->use_tls && is_loopback_host(parsed->host);
  config.verify_checksums = options.verify_checksums && !settings.asks_for_sums_when_required;
  config.upload_checksum = options.upload_checksum;
  // Whoever asks for another kind than the usual one means it.
  if (settings.sums_requests_when_required && config.upload_checksum == ChecksumKind::kCrc32c)
    config.upload_checksum = ChecksumKind::kNone;
  config.requester_pays = options.requester_pays;
  config.settings = options.settings;
  config.trusted = TrustedHosts(parsed->host, options.trusted_hosts);
  config.base_path = http::encode(parsed->path, http::Slash::kKeep);
  if (is_path_style) {
    config.base_path += "/" + config.bucket;
  } else {
    parsed->host.insert(0, config.bucket + ".");
  }
  config.endpoint = HttpEndpoint{parsed->host, parsed->port, parsed->use_tls};
  config.host_field = parsed->authority();

  if (options.anonymous) {
    config.credentials_source = "anonymous";
    return config;
  }
  if (provider == nullptr && settings.credentials)
    provider = auth::static_credentials(*settings.credentials);
  if (provider == nullptr) return settings.missing_credentials().annotate(url.root);
  config.credentials = std::move(provider);
  config.credentials_source = settings.credentials_source;
  return config;
}

}  // namespace headrace::s3
