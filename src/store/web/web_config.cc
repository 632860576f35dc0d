#include "store/web/web_config.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <cctype>

#include "base/base64.h"
#include "http/fields.h"
#include "http/uri.h"

namespace headrace::web {
namespace {

bool has_unsafe_byte(std::string_view text) noexcept {
  for (char c : text) {
    if (static_cast<unsigned char>(c) <= 0x20 || c == 0x7f) return true;
  }
  return false;
}

std::vector<std::string_view> parameters_of(std::string_view query) {
  std::vector<std::string_view> parameters;
  while (!query.empty()) {
    parameters.push_back(query.substr(0, query.find('&')));
    query.remove_prefix(std::min(parameters.back().size() + 1, query.size()));
  }
  return parameters;
}

std::string_view name_of(std::string_view parameter) noexcept {
  return parameter.substr(0, parameter.find('='));
}

/// The parameters of a query that let their bearer in: signatures of S3, Google and Azure, tokens,
/// keys.
std::vector<std::string> secrets_of(std::string_view query) {
  std::vector<std::string> secrets;
  for (const std::string_view parameter : parameters_of(query)) {
    std::string name(name_of(parameter));
    for (char& c : name) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    const bool is_secret =
        name == "sig" || name == "key" || name == "apikey" || name == "auth" ||
        name.find("sign") != std::string::npos || name.find("token") != std::string::npos ||
        name.find("secret") != std::string::npos || name.find("password") != std::string::npos;
    if (is_secret && name.size() < parameter.size()) secrets.emplace_back(parameter);
  }
  return secrets;
}

/// Parameters of signed URLs that say who may read and until when, and not what: each signing makes
/// others. Names of the query authentication of AWS (versions 2 and 4) and Google, of CloudFront,
/// and of Azure's SAS.
bool is_of_signing(std::string_view parameter) noexcept {
  constexpr std::array kNames = {"AWSAccessKeyId",
                                 "Expires",
                                 "GoogleAccessId",
                                 "Key-Pair-Id",
                                 "Policy",
                                 "Signature",
                                 "sv",
                                 "ss",
                                 "srt",
                                 "sr",
                                 "sp",
                                 "st",
                                 "se",
                                 "sip",
                                 "spr",
                                 "sig",
                                 "ske",
                                 "skt",
                                 "sks",
                                 "skv",
                                 "sktid",
                                 "skoid",
                                 "sdd",
                                 "saoid",
                                 "suoid",
                                 "scid"};
  const std::string_view name = name_of(parameter);
  const auto begins = [&](std::string_view text) {
    return http::equals_ignoring_case(name.substr(0, text.size()), text);
  };
  return begins("x-amz-") || begins("x-goog-") ||
         std::find(kNames.begin(), kNames.end(), name) != kNames.end();
}

/// `user`: without the password, which may be short enough to be found by trying.
std::string variant_of(const WebConfig& config, const std::string& user) {
  const bool is_signed =
      std::any_of(config.signatures.begin(), config.signatures.end(), is_of_signing);
  std::string asked = user;
  for (const std::string_view parameter : parameters_of(config.query)) {
    if (!is_signed || !is_of_signing(parameter)) asked += "&" + std::string(parameter);
  }
  if (asked.empty()) return {};
  const XXH128_hash_t hash = XXH3_128bits(asked.data(), asked.size());
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

}  // namespace

Result<WebConfig> make_web_config(const StoreOptions& options) {
  std::string_view text = options.url;
  const std::size_t scheme_end = text.find("://");
  const std::size_t fragment = text.find('#');
  if (fragment != std::string_view::npos) text = text.substr(0, fragment);
  WebConfig config;
  std::string user_name;
  if (const std::size_t question = text.find('?'); question != std::string_view::npos) {
    config.query = text.substr(question + 1);
    text = text.substr(0, question);
  }
  std::string plain(text);
  const std::size_t host = scheme_end + 3;
  const std::size_t path = std::min(plain.find('/', host), plain.size());
  if (const std::size_t at = plain.rfind('@', path); at != std::string::npos && at >= host) {
    // Escaped as everything in a URL.
    auto user = http::decode(std::string_view(plain).substr(host, at - host));
    plain.erase(host, at + 1 - host);
    if (!user) {  // Not with decode()'s message: it shows what it could not read.
      return Status(Code::kInvalidArgument,
                    plain + ": user and password have a % without two hex digits; write %25 for %");
    }
    config.authorization = "Basic " + base64(*user);
    user_name = user->substr(0, user->find(':'));
  }
  while (plain.size() > host && plain.ends_with('/')) plain.pop_back();
  for (std::size_t i = 0; i < scheme_end; ++i)
    plain[i] = static_cast<char>(std::tolower(static_cast<unsigned char>(plain[i])));
  config.root_url = plain;
  if (has_unsafe_byte(plain) || has_unsafe_byte(config.query)) {
    return Status(Code::kInvalidArgument,
                  http::without_secrets(plain) +
                      ": the URL has a blank or control character; escape it (%20)");
  }
  auto parsed = http::parse_http_url(plain);
  if (!parsed) return std::move(parsed).error().annotate("store URL");
  config.endpoint = {parsed->host, parsed->port, parsed->use_tls};
  config.host_field = parsed->authority();
  config.signatures = secrets_of(config.query);
  config.variant = variant_of(config, user_name);
  config.trusted = TrustedHosts(parsed->host, options.trusted_hosts);
  config.base_path = parsed->path;
  return config;
}

}  // namespace headrace::web
