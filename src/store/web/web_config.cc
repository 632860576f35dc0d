#include "store/web/web_config.h"

#include <algorithm>
#include <cctype>

#include "base/base64.h"
#include "http/uri.h"

namespace headrace::web {
namespace {

bool has_unsafe_byte(std::string_view text) noexcept {
  for (char c : text) {
    if (static_cast<unsigned char>(c) <= 0x20 || c == 0x7f) return true;
  }
  return false;
}

/// The parameters of a query that let their bearer in: signatures of S3, Google and Azure, tokens,
/// keys.
std::vector<std::string> secrets_of(std::string_view query) {
  std::vector<std::string> secrets;
  while (!query.empty()) {
    const std::string_view parameter = query.substr(0, query.find('&'));
    query.remove_prefix(std::min(parameter.size() + 1, query.size()));
    std::string name(parameter.substr(0, parameter.find('=')));
    for (char& c : name) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    const bool is_secret =
        name == "sig" || name == "key" || name == "apikey" || name == "auth" ||
        name.find("sign") != std::string::npos || name.find("token") != std::string::npos ||
        name.find("secret") != std::string::npos || name.find("password") != std::string::npos;
    if (is_secret && name.size() < parameter.size()) secrets.emplace_back(parameter);
  }
  return secrets;
}

}  // namespace

Result<WebConfig> make_web_config(const StoreOptions& options) {
  std::string_view text = options.url;
  const std::size_t scheme_end = text.find("://");
  const std::size_t fragment = text.find('#');
  if (fragment != std::string_view::npos) text = text.substr(0, fragment);
  WebConfig config;
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
  config.trusted = TrustedHosts(parsed->host, options.trusted_hosts);
  config.base_path = parsed->path;
  return config;
}

}  // namespace headrace::web
