#include "store/transfer/redirect.h"

#include <algorithm>
#include <string>

#include "http/uri.h"

namespace headrace::transfer {

bool is_redirect(int status, std::string_view method) noexcept {
  switch (status) {
    case 301:
    case 302:
      return method != "POST";
    case 303:
      return method == "GET" || method == "HEAD";
    case 307:
    case 308:
      return true;
    default:
      return false;
  }
}

Result<HttpRedirect> parse_redirect(std::string_view location, const HttpEndpoint& from,
                                    std::string_view from_target) {
  location = location.substr(0, location.find('#'));
  const bool has_control = std::any_of(location.begin(), location.end(), [](char c) {
    return static_cast<unsigned char>(c) <= ' ' || c == '\x7f';
  });
  const auto corrupt = [&] {
    return Status(Code::kCorrupt, "redirected to \"" + std::string(location.substr(0, 200)) +
                                      "\", which is not a usable address");
  };
  if (location.empty() || has_control) return corrupt();
  std::string absolute(location);
  const bool has_scheme = location.find("://") < location.find_first_of("/?");
  if (!has_scheme) {
    const std::string scheme = from.use_tls ? "https:" : "http:";
    http::HttpUrl base;
    base.host = from.host;
    base.port = from.port;
    base.has_default_port = from.port == (from.use_tls ? 443 : 80);
    if (location.starts_with("//")) {
      absolute = scheme + absolute;
    } else if (location.starts_with('/')) {
      absolute = scheme + "//" + base.authority() + absolute;
    } else {
      const std::string_view path = from_target.substr(0, from_target.find('?'));
      const std::string_view kept =
          location.starts_with('?') ? path : path.substr(0, path.rfind('/') + 1);
      absolute = scheme + "//" + base.authority() + std::string(kept) + absolute;
    }
  }
  const std::size_t authority_begin = absolute.find("://");
  if (authority_begin == std::string::npos) return corrupt();
  const std::size_t target_begin =
      std::min(absolute.find_first_of("/?", authority_begin + 3), absolute.size());
  auto url = http::parse_http_url(std::string_view(absolute).substr(0, target_begin));
  if (!url) return corrupt();
  if (from.use_tls && !url->use_tls)
    return Status(Code::kDenied,
                  "redirected from https to http://" + url->authority() + ", not followed");
  HttpRedirect redirect;
  redirect.endpoint = {url->host, url->port, url->use_tls};
  redirect.host_field = url->authority();
  redirect.target = absolute.substr(target_begin);
  if (!redirect.target.starts_with('/')) redirect.target.insert(0, 1, '/');
  return redirect;
}

}  // namespace headrace::transfer
