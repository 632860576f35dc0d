// Two kinds of services give tokens: Entra ID over the network, with a secret or a token file that
// is read anew each time because Kubernetes replaces it, and a service on the machine, whose short
// limits of time make sure that a machine without one is found out soon. What an answer says of
// its own failure is shown to the user, cut to one printable line of 300 characters: it comes from
// somebody else and ends in logs.
#include "auth/azure_tokens.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/strings.h"
#include "http/uri.h"

namespace headrace::auth {
namespace {

using Kind = AzureIdentity::Kind;
using nlohmann::json;

constexpr std::string_view kScope = "https://storage.azure.com/.default";  // Entra ID, version 2
constexpr std::string_view kResource = "https://storage.azure.com/";       // local services

std::string form(std::initializer_list<std::pair<std::string_view, std::string_view>> pairs) {
  std::string out;
  for (const auto& [name, value] : pairs) {
    if (!out.empty()) out.push_back('&');
    out.append(name).push_back('=');
    http::append_encoded(value, http::Slash::kEscape, out);
  }
  return out;
}

std::string printable(std::string_view text, std::size_t max_bytes) {
  std::string out;
  for (char c : text.substr(0, max_bytes))
    out.push_back(static_cast<unsigned char>(c) < 0x20 || c == 0x7f ? ' ' : c);
  return out;
}

std::string text_member(const json& object, const char* name) {
  const auto it = object.find(name);
  return it != object.end() && it->is_string() ? it->get<std::string>() : std::string();
}

/// Seconds, which services send as a number or as a text. Nullopt for what is no time of this
/// millennium.
std::optional<std::chrono::seconds> seconds_member(const json& object, const char* name) {
  constexpr std::uint64_t kMaxSeconds = 32'503'680'000;  // the year 3000
  const auto it = object.find(name);
  std::optional<std::uint64_t> value;
  if (it != object.end() && it->is_number_unsigned()) value = it->get<std::uint64_t>();
  if (it != object.end() && it->is_string())
    value = parse_decimal<std::uint64_t>(it->get<std::string>());
  if (!value || *value > kMaxSeconds) return std::nullopt;
  return std::chrono::seconds(static_cast<std::int64_t>(*value));
}

/// What the service said went wrong: "invalid_client: AADSTS7000215: Invalid client secret ...".
std::string explanation(const json& answer) {
  std::string out = text_member(answer, "error");
  std::string more = text_member(answer, "error_description");
  if (more.empty()) more = text_member(answer, "message");
  if (more.empty()) more = text_member(answer, "Message");
  if (!out.empty() && !more.empty()) out += ": ";
  // Entra ID appends trace ids and times, one a line.
  return printable(out + more.substr(0, more.find_first_of("\r\n")), 300);
}

Result<WebRequest> entra_request(const AzureIdentity& identity, const FileReader& read_file) {
  WebRequest request;
  request.method = "POST";
  request.url = identity.authority + "/" + http::encode(identity.tenant_id, http::Slash::kEscape) +
                "/oauth2/v2.0/token";
  request.headers = {{"content-type", "application/x-www-form-urlencoded"},
                     {"accept", "application/json"}};
  request.timeout = std::chrono::seconds(10);
  request.connect_timeout = std::chrono::seconds(3);
  if (identity.kind == Kind::kClientSecret) {
    request.body = form({{"grant_type", "client_credentials"},
                         {"client_id", identity.client_id},
                         {"client_secret", identity.client_secret},
                         {"scope", kScope}});
    return request;
  }
  const auto assertion = read_file(identity.token_file);
  if (!assertion || assertion->empty()) {
    return Status(Code::kDenied, "the token file " + identity.token_file +
                                     " (AZURE_FEDERATED_TOKEN_FILE) is missing or empty");
  }
  std::string_view text = *assertion;
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r')) text.remove_suffix(1);
  request.body =
      form({{"grant_type", "client_credentials"},
            {"client_id", identity.client_id},
            {"client_assertion_type", "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"},
            {"client_assertion", text},
            {"scope", kScope}});
  return request;
}

WebRequest local_request(const AzureIdentity& identity) {
  WebRequest request;
  const bool is_machine = identity.kind == Kind::kMachine;
  request.is_local = true;
  request.url = identity.endpoint;
  if (is_machine) request.url += "/metadata/identity/oauth2/token";
  request.url += identity.endpoint.find('?') == std::string::npos ? "?" : "&";
  request.url +=
      form({{"api-version", is_machine ? "2018-02-01" : "2019-08-01"}, {"resource", kResource}});
  if (!identity.client_id.empty()) request.url += "&" + form({{"client_id", identity.client_id}});
  if (is_machine) {
    request.headers = {{"metadata", "true"}};
  } else {
    request.headers = {{"x-identity-header", identity.header_secret}};
  }
  request.connect_timeout = std::chrono::seconds(1);
  request.timeout = std::chrono::seconds(5);
  return request;
}

Result<Token> token_from(const WebAnswer& answer, const Clock& clock) {
  const json parsed = json::parse(answer.body, nullptr, false);
  const std::string words = parsed.is_object() ? explanation(parsed) : std::string();
  const std::string status = " (HTTP " + std::to_string(answer.status) + ")";
  if (answer.status != 200) {
    // 410: the metadata service is being updated, by Microsoft's guide to its retries.
    const bool may_pass = answer.status == 404 || answer.status == 408 || answer.status == 410 ||
                          answer.status == 429 || answer.status >= 500;
    const Code code = answer.status == 429 ? Code::kThrottled
                      : may_pass           ? Code::kUnavailable
                                           : Code::kDenied;
    return Status(code, (words.empty() ? "the token was refused" : words) + status);
  }
  Token token;
  if (parsed.is_object()) token.text = text_member(parsed, "access_token");
  const bool is_clean = std::none_of(token.text.begin(), token.text.end(), [](char c) {
    return static_cast<unsigned char>(c) <= 0x20 || c == 0x7f;
  });
  if (token.text.empty() || !is_clean)
    return Status(Code::kDenied, "the answer has no access token" + status);
  // A life is safer than a point in time on machines whose clock is wrong.
  if (const auto life = seconds_member(parsed, "expires_in")) {
    token.expires = clock.wall_now() + *life;
  } else if (const auto end = seconds_member(parsed, "expires_on")) {
    token.expires = WallTime(*end);
  }
  return token;
}

}  // namespace

Result<Token> fetch_azure_token(const AzureIdentity& identity, WebClient& web,
                                const FileReader& read_file, const Clock& clock,
                                std::stop_token stop) {
  WebRequest request;
  if (identity.kind == Kind::kClientSecret || identity.kind == Kind::kWorkload) {
    HEADRACE_TRY_ASSIGN(request, entra_request(identity, read_file));
  } else {
    request = local_request(identity);
  }
  HEADRACE_TRY_ASSIGN(const WebAnswer answer, web.fetch(request, std::move(stop)));
  return token_from(answer, clock);
}

std::shared_ptr<TokenProvider> azure_tokens(AzureIdentity identity, std::string source,
                                            std::shared_ptr<WebClient> web, FileReader read_file,
                                            const Clock* clock) {
  RenewalOptions options;
  options.what = "Azure token, " + std::move(source);
  // Microsoft's libraries renew five minutes before the end; machines hand out the same token until
  // then, so that asking earlier brings nothing new.
  options.advisory_margin = std::chrono::minutes(5);
  options.mandatory_margin = std::chrono::minutes(2);
  const Clock& time = clock != nullptr ? *clock : system_clock();
  return renewing_tokens(
      std::move(options), [identity = std::move(identity), web = std::move(web),
                           read_file = std::move(read_file), &time](std::stop_token stop) {
        return fetch_azure_token(identity, *web, read_file, time, std::move(stop));
      });
}

}  // namespace headrace::auth
