#include "store/gcs/gcs_config.h"

#include "http/uri.h"
#include "store/loopback.h"

namespace headrace::gcs {
namespace {

constexpr std::string_view kGoogle = "https://storage.googleapis.com";
constexpr std::size_t kMaxKeyBytes = 1024;  // Google: "Object name considerations"

/// Google's rules without the finer ones; names with dots may have 222 characters.
bool is_bucket_name(std::string_view name) noexcept {
  if (name.size() < 3 || name.size() > 222) return false;
  for (char c : name) {
    const bool is_letter = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
    if (!is_letter && c != '-' && c != '.' && c != '_') return false;
  }
  return true;
}

}  // namespace

Result<GcsConfig> make_gcs_config(const StoreOptions& options, const StoreUrl& url,
                                  const auth::GoogleSettings& settings) {
  GcsConfig config;
  config.bucket = url.bucket;
  config.root_url = url.root;
  config.prefix = url.path.empty() ? "" : url.path + "/";
  if (!is_bucket_name(url.bucket))
    return bad_bucket_name(url, "3 to 222 of a-z, 0-9, dot, hyphen, underscore");
  std::string endpoint = options.endpoint;
  std::string source = "endpoint option";
  if (endpoint.empty() && !settings.emulator_host.empty()) {
    endpoint = settings.emulator_host;
    if (endpoint.find("://") == std::string::npos) endpoint.insert(0, "http://");
    source = "STORAGE_EMULATOR_HOST";
    config.is_emulator = true;
  }
  if (endpoint.empty()) endpoint = kGoogle;
  auto parsed = http::parse_http_url(endpoint);
  if (!parsed) return std::move(parsed).error().annotate(source);
  config.endpoint = {parsed->host, parsed->port, parsed->use_tls};
  config.host_field = parsed->authority();
  config.base_path = http::encode(parsed->path, http::Slash::kKeep);
  config.sends_checksum = options.upload_checksum != ChecksumKind::kNone;
  config.checks_checksum = options.verify_checksums;
  config.settings = options.settings;
  config.project = settings.project;
  if (options.requester_pays) {
    config.user_project = settings.project;
    if (config.user_project.empty()) {
      return Status(
          Code::kInvalidArgument,
          url.root + ": requester_pays needs the project that pays; set GOOGLE_CLOUD_PROJECT");
    }
  }
  return config;
}

Status check_token_path(const GcsConfig& config) {
  if (config.endpoint.use_tls || is_loopback_host(config.endpoint.host)) return {};
  return Status(Code::kDenied, config.root_url + ": tokens (" + config.credentials_source +
                                   ") are not sent over plain HTTP to " + config.host_field +
                                   "; use an https endpoint, HMAC keys, or anonymous");
}

Status check_gcs_key(std::string_view key) {
  if (key.empty()) return Status(Code::kInvalidArgument, "the key is empty");
  if (key.size() > kMaxKeyBytes) {
    return Status(Code::kInvalidArgument, "the key has " + std::to_string(key.size()) +
                                              " bytes with the store's prefix; Google allows 1024");
  }
  for (char c : key) {
    if (c == '\0' || c == '\r' || c == '\n')
      return Status(Code::kInvalidArgument,
                    "the key has a NUL, CR or LF character, which Google does not allow");
  }
  if (key == "." || key == "..")
    return Status(Code::kInvalidArgument,
                  "Google does not allow the key \"" + std::string(key) + "\"");
  return {};
}

}  // namespace headrace::gcs
