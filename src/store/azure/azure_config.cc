#include "store/azure/azure_config.h"

#include <algorithm>
#include <utility>

#include "http/uri.h"
#include "store/loopback.h"

namespace headrace::azure {
namespace {

bool is_account_name(std::string_view name) noexcept {
  if (name.empty() || name.size() > 64) return false;
  return std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-';
  });
}

/// Microsoft's rules: 3 to 63 lower-case letters, digits and single hyphens; and three names of its
/// own.
bool is_container_name(std::string_view name) noexcept {
  if (name == "$root" || name == "$web" || name == "$logs") return true;
  if (name.size() < 3 || name.size() > 63 || name.front() == '-' || name.back() == '-')
    return false;
  if (name.find("--") != std::string_view::npos) return false;
  return std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-';
  });
}

/// Without dots, or nothing but digits and dots, or an IPv6 address: no name in which an account
/// could stand.
bool is_bare_host(std::string_view host) noexcept {
  return host.find('.') == std::string_view::npos || host.find(':') != std::string_view::npos ||
         host.find_first_not_of("0123456789.") == std::string_view::npos;
}

Status bad(const StoreUrl& url, const std::string& why) {
  return Status(Code::kInvalidArgument, http::without_secrets(url.root) + ": " + why);
}

/// A part of a URL, as messages may show it.
std::string shown(const std::string& part) {
  constexpr std::string_view kStart = "az://";
  return http::without_secrets(std::string(kStart) + part).substr(kStart.size());
}

/// Takes "?...sig=..." off the end of `text`.
std::string take_sas(std::string& text) {
  const std::size_t question = text.rfind('?');
  if (question == std::string::npos) return {};
  const std::string query = text.substr(question + 1);
  if (query.find("sig=") == std::string::npos || query.find("sv=") == std::string::npos) return {};
  text.erase(question);
  while (text.ends_with('/')) text.pop_back();
  return query;
}

/// Takes the part before the first slash off `path`.
std::string take_segment(std::string& path) {
  const std::size_t slash = path.find('/');
  std::string first = path.substr(0, slash);
  path.erase(0, slash == std::string::npos ? path.size() : slash + 1);
  while (path.starts_with('/')) path.erase(0, 1);
  return first;
}

/// Where the endpoint's URL says that the account is: in the host, in the path, or nowhere yet.
std::string path_before_container(const http::HttpUrl& endpoint, const std::string& account,
                                  std::optional<bool> path_style) {
  std::string path = http::encode(endpoint.path, http::Slash::kKeep);
  const bool has_account = path == "/" + account || path.ends_with("/" + account);
  if (has_account && path_style.value_or(true)) return path;
  const bool is_in_host = endpoint.host.starts_with(account + ".");
  if (path_style.value_or(!is_in_host && is_bare_host(endpoint.host))) path += "/" + account;
  return path;
}

Result<AzureCredentials> make_credentials(const AzureLocation& location,
                                          const auth::AzureSettings& settings, bool may_send_tokens,
                                          const TokenFactory& make_tokens) {
  AzureCredentials out;
  out.source = settings.credentials_source;
  if (!location.sas.empty()) {
    out.sas = location.sas;
    out.source = "SAS in the store's URL";
  } else if (!settings.account_key.empty()) {
    HEADRACE_TRY_ASSIGN(out.signer,
                        auth::SharedKeySigner::create(location.account, settings.account_key));
  } else if (!settings.sas.empty()) {
    out.sas = settings.sas;
  } else if (settings.identity) {
    if (!may_send_tokens) {
      return Status(Code::kInvalidArgument, "tokens (" + out.source +
                                                ") are not sent over plain HTTP; use an https "
                                                "endpoint");
    }
    out.tokens = make_tokens(*settings.identity, out.source);
  } else {
    return settings.missing_credentials();
  }
  const bool is_clean =
      std::all_of(out.sas.begin(), out.sas.end(), [](char c) { return c > 0x20 && c < 0x7f; });
  if (!is_clean)
    return Status(Code::kInvalidArgument, "the SAS (" + out.source +
                                              ") has characters that no SAS "
                                              "has");
  return out;
}

}  // namespace

bool is_azure_url(const StoreUrl& url) noexcept {
  for (const std::string_view scheme : {"az", "azure", "abfs", "abfss", "wasb", "wasbs"}) {
    if (url.scheme == scheme) return true;
  }
  if (url.scheme != "https" && url.scheme != "http") return false;
  return std::any_of(auth::kAzureBlobSuffixes.begin(), auth::kAzureBlobSuffixes.end(),
                     [&](std::string_view suffix) { return url.bucket.ends_with(suffix); });
}

Result<AzureLocation> parse_azure_location(const StoreUrl& url) {
  AzureLocation out;
  out.path = url.path;
  out.root_url = url.root;
  std::string bucket = url.bucket;
  out.sas = take_sas(out.path);
  if (out.sas.empty()) out.sas = take_sas(bucket);  // of a whole container: no path before it
  if (!out.sas.empty()) {
    // The root without its query; it may not end in a slash.
    take_sas(out.root_url);
  }
  if (url.scheme == "az" || url.scheme == "azure") {
    out.account = bucket;
    out.container = take_segment(out.path);
    if (out.container.empty()) {
      return bad(url,
                 "no container; it must look like " + url.scheme + "://account/container/prefix");
    }
  } else if (url.scheme == "http" || url.scheme == "https") {
    out.account = auth::azure_account_of_host(bucket);
    out.endpoint = url.scheme + "://" + bucket;
    out.container = take_segment(out.path);
    if (out.container.empty())
      return bad(url,
                 "no container; it must look like https://" + shown(bucket) + "/container/prefix");
  } else {
    const std::size_t at = bucket.find('@');
    if (at == std::string::npos) {
      return bad(url, "it must look like " + url.scheme +
                          "://container@account.dfs.core.windows.net/prefix");
    }
    out.container = bucket.substr(0, at);
    out.account = bucket.substr(at + 1, bucket.find('.', at) - at - 1);
    std::string host = bucket.substr(at + 1);
    const std::size_t service = host.find(".dfs.");
    out.is_data_lake = service != std::string::npos;
    // Data Lake accounts answer the Blob service's requests under its own name.
    if (out.is_data_lake) host.replace(service, 5, ".blob.");
    if (host.find('.') != std::string::npos) out.endpoint = "https://" + host;
  }
  if (!is_account_name(out.account)) {
    return bad(url, "\"" + shown(out.account) +
                        "\" is not the name of a storage account (lower-case letters and digits)");
  }
  if (!is_container_name(out.container)) {
    return bad(url, "\"" + shown(out.container) +
                        "\" is not a container name (3 to 63 lower-case letters, digits and single "
                        "hyphens)");
  }
  return out;
}

Result<AzureConfig> make_azure_config(const StoreOptions& options, const AzureLocation& location,
                                      const auth::AzureSettings& settings,
                                      const TokenFactory& make_tokens) {
  AzureConfig config;
  config.account = location.account;
  config.container = location.container;
  config.prefix = location.path.empty() ? "" : location.path + "/";
  config.root_url = location.root_url;
  config.is_data_lake = location.is_data_lake;
  // The emulator refuses requests with CRC-64 fields ("FeatureNotSupported", Azurite 3.35).
  const bool is_emulator = location.account == auth::kAzureDevelopmentAccount;
  config.asks_checksums = options.verify_checksums && !is_emulator;
  config.settings = options.settings;
  config.sends_checksums = options.upload_checksum != ChecksumKind::kNone && !is_emulator;

  std::string endpoint = options.endpoint;
  std::string source = "endpoint option";
  if (endpoint.empty() && !settings.endpoint.text.empty()) {
    endpoint = settings.endpoint.text;
    source = settings.endpoint.source;
  }
  if (endpoint.empty()) {
    endpoint = !location.endpoint.empty()
                   ? location.endpoint
                   : "https://" + location.account + ".blob.core.windows.net";
    source = location.root_url;
  }
  auto parsed = http::parse_http_url(endpoint);
  if (!parsed) return std::move(parsed).error().annotate(source);
  if (const auto other = auth::other_azure_account(parsed->host, location.account);
      !other.empty()) {
    return Status(Code::kInvalidArgument, location.root_url + ": " + source + ", " + parsed->host +
                                              ", is of the account " + std::string(other) +
                                              ", not of " + location.account);
  }
  config.endpoint = HttpEndpoint{parsed->host, parsed->port, parsed->use_tls};
  config.host_field = parsed->authority();
  config.origin = (parsed->use_tls ? "https://" : "http://") + config.host_field;
  config.container_path = path_before_container(*parsed, location.account, options.path_style) +
                          "/" + http::encode(location.container, http::Slash::kKeep);

  if (options.anonymous) {
    config.credentials.source = "anonymous";
    return config;
  }
  const bool may_send_tokens = parsed->use_tls || is_loopback_host(parsed->host);
  auto credentials = make_credentials(location, settings, may_send_tokens, make_tokens);
  if (!credentials) return std::move(credentials).error().annotate(location.root_url);
  config.credentials = *std::move(credentials);
  return config;
}

}  // namespace headrace::azure
