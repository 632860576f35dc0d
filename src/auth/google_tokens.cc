// How each kind of identity comes to a token:
//
// | identity          | steps                                                                |
// |-------------------|----------------------------------------------------------------------|
// | service account   | signs a token itself; elsewhere than at Google, an assertion for one |
// | user              | refresh token for access token                                       |
// | external account  | another provider's token, traded at STS; impersonation may follow    |
// | impersonated      | a token of its source, which asks IAM for one of the other account   |
// | machine           | asks the metadata server                                             |
//
// Of a refusal only the fields that are meant for people enter a message: bodies may repeat what
// was sent, and that is secret. 5xx, 408 and 429 may pass; everything else is final and has
// advice.
#include "auth/google_tokens.h"

#include <nlohmann/json.hpp>

#include "base/base64.h"
#include "base/strings.h"
#include "http/date.h"
#include "http/uri.h"

namespace headrace::auth {
namespace {

using nlohmann::json;

constexpr std::chrono::seconds kTokenLife{3600};
// Objects' data and listings; not the policies of buckets.
constexpr const char* kScope = "https://www.googleapis.com/auth/devstorage.read_write";
// What impersonation and STS hand out must cover the step that follows.
constexpr const char* kBroadScope = "https://www.googleapis.com/auth/cloud-platform";
constexpr const char* kJwtGrant = "urn:ietf:params:oauth:grant-type:jwt-bearer";

std::string form(const std::vector<std::pair<std::string, std::string>>& fields) {
  std::string out;
  for (const auto& [name, value] : fields) {
    if (!out.empty()) out.push_back('&');
    http::append_encoded(name, http::Slash::kEscape, out);
    out.push_back('=');
    http::append_encoded(value, http::Slash::kEscape, out);
  }
  return out;
}

WebRequest post_form(const std::string& url,
                     const std::vector<std::pair<std::string, std::string>>& fields) {
  WebRequest request;
  request.method = "POST";
  request.url = url;
  request.headers = {{"content-type", "application/x-www-form-urlencoded"}};
  request.body = form(fields);
  return request;
}

std::string printable(std::string_view text) {
  std::string out;
  for (char c : text.substr(0, 200))
    out.push_back(static_cast<unsigned char>(c) < 0x20 || c == 0x7f ? ' ' : c);
  return out;
}

/// What a token service says about its refusal: only the fields that are meant for people.
std::string reason_of(const std::string& body) {
  const json object = json::parse(body, nullptr, false);
  if (!object.is_object()) return {};
  std::string reason;
  const auto add = [&reason](const json& text) {
    if (!text.is_string()) return;
    if (!reason.empty()) reason += ": ";
    reason += printable(text.get<std::string>());
  };
  if (object.contains("error")) {
    const json& error = object["error"];
    add(error);
    if (error.is_object() && error.contains("message")) add(error["message"]);
  }
  if (object.contains("error_description")) add(object["error_description"]);
  return reason;
}

/// One identity's way to a token.
class Fetcher {
 public:
  Fetcher(const GoogleTokenTools& tools, const std::stop_token& stop)
      : tools_(tools),
        stop_(stop),
        now_((tools.clock != nullptr ? *tools.clock : system_clock()).wall_now()) {}

  Result<Token> fetch(const GoogleIdentity& identity, const char* scope) {
    switch (identity.kind) {
      case GoogleIdentity::Kind::kServiceAccount:
        return service_account(identity, scope);
      case GoogleIdentity::Kind::kAuthorizedUser:
        return user(identity);
      case GoogleIdentity::Kind::kExternalAccount:
        return external(identity, scope);
      case GoogleIdentity::Kind::kImpersonated: {
        HEADRACE_TRY_ASSIGN(const Token source, fetch(*identity.source, kBroadScope));
        return impersonate(identity, source, scope);
      }
      case GoogleIdentity::Kind::kMachine:
        return machine(identity);
    }
    return Status(Code::kInternal, "unknown kind of credentials");
  }

 private:
  Result<Token> service_account(const GoogleIdentity& identity, const char* scope) {
    if (is_self_signed(identity)) {  // Google takes the service account's own signature for a token
      HEADRACE_TRY_ASSIGN(std::string jwt, google_jwt(identity, "", scope, now_));
      return Token{std::move(jwt), now_ + kTokenLife};
    }
    HEADRACE_TRY_ASSIGN(const std::string assertion,
                        google_jwt(identity, identity.token_uri, scope, now_));
    return exchange(
        post_form(identity.token_uri, {{"grant_type", kJwtGrant}, {"assertion", assertion}}),
        "check that the key of " + identity.client_email + " still exists");
  }

  Result<Token> user(const GoogleIdentity& identity) {
    return exchange(post_form(identity.token_uri, {{"grant_type", "refresh_token"},
                                                   {"client_id", identity.client_id},
                                                   {"client_secret", identity.client_secret},
                                                   {"refresh_token", identity.refresh_token}}),
                    "run \"gcloud auth application-default login\" again");
  }

  Result<Token> external(const GoogleIdentity& identity, const char* scope) {
    HEADRACE_TRY_ASSIGN(const std::string subject, subject_token(identity));
    const bool is_impersonating = !identity.impersonation_url.empty();
    std::vector<std::pair<std::string, std::string>> fields = {
        {"grant_type", "urn:ietf:params:oauth:grant-type:token-exchange"},
        {"audience", identity.audience},
        {"scope", is_impersonating ? kBroadScope : scope},
        {"requested_token_type", "urn:ietf:params:oauth:token-type:access_token"},
        {"subject_token", subject},
        {"subject_token_type", identity.subject_token_type}};
    // As Google's libraries: the project is for workforce pools, which have no client.
    if (!identity.workforce_project.empty() && identity.client_id.empty()) {
      fields.emplace_back("options", json{{"userProject", identity.workforce_project}}.dump());
    }
    WebRequest request = post_form(identity.token_uri, fields);
    if (!identity.client_id.empty()) {
      request.headers.emplace_back(
          "authorization", "Basic " + base64(identity.client_id + ":" + identity.client_secret));
    }
    HEADRACE_TRY_ASSIGN(
        Token token,
        exchange(request, "check the workload identity pool's provider and its conditions"));
    if (!is_impersonating) return token;
    return impersonate(identity, token, scope);
  }

  Result<std::string> subject_token(const GoogleIdentity& identity) {
    std::string text, place;
    if (!identity.subject_file.empty()) {
      place = identity.subject_file;
      auto read = tools_.read_file(place);
      if (!read) {
        return Status(Code::kNotFound,
                      "the subject token's file " + place + " does not exist or cannot be read");
      }
      text = *std::move(read);
    } else {
      place = identity.subject_url;
      WebRequest request;
      request.url = place;
      request.headers = identity.subject_headers;
      auto answer = tools_.web->fetch(request, stop_);
      if (!answer) return std::move(answer).error().annotate("subject token from " + place);
      if (answer->status != 200) return refusal(request, *answer, "check the credentials file");
      text = std::move(answer->body);
    }
    if (identity.subject_field.empty()) {
      while (!text.empty() && (text.back() == '\n' || text.back() == '\r' || text.back() == ' '))
        text.pop_back();
    } else {
      const json object = json::parse(text, nullptr, false);
      const bool has_field = object.is_object() && object.contains(identity.subject_field) &&
                             object[identity.subject_field].is_string();
      text = has_field ? object[identity.subject_field].get<std::string>() : std::string();
    }
    if (text.empty()) return Status(Code::kCorrupt, place + " holds no subject token");
    return text;
  }

  Result<Token> impersonate(const GoogleIdentity& identity, const Token& source,
                            const char* scope) {
    WebRequest request;
    request.method = "POST";
    request.url = identity.impersonation_url;
    request.headers = {{"authorization", "Bearer " + source.text},
                       {"content-type", "application/json"}};
    json body = {{"scope", {scope}}, {"lifetime", std::to_string(kTokenLife.count()) + "s"}};
    if (!identity.delegates.empty()) body["delegates"] = identity.delegates;
    request.body = body.dump();
    HEADRACE_TRY_ASSIGN(
        const json answer,
        ask(request, "it needs roles/iam.serviceAccountTokenCreator on the service account"));
    const auto expires = answer.contains("expireTime") && answer["expireTime"].is_string()
                             ? http::parse_iso_date(answer["expireTime"].get<std::string>())
                             : std::nullopt;
    return token_of(answer, "accessToken", expires.value_or(now_ + kTokenLife));
  }

  Result<Token> machine(const GoogleIdentity& identity) {
    WebRequest request;
    request.url = "http://" + identity.metadata_host +
                  "/computeMetadata/v1/instance/service-accounts/default/token?scopes=" +
                  http::encode(kScope, http::Slash::kEscape);
    request.headers = {{"metadata-flavor", "Google"}};
    request.is_local = true;
    return exchange(request, "give the machine a service account with the storage scope");
  }

  Result<Token> exchange(const WebRequest& request, const std::string& advice) {
    HEADRACE_TRY_ASSIGN(const json answer, ask(request, advice));
    std::chrono::seconds life = kTokenLife;
    if (answer.contains("expires_in") && answer["expires_in"].is_number_integer())
      life = std::chrono::seconds(answer["expires_in"].get<std::int64_t>());
    return token_of(answer, "access_token", now_ + life);
  }

  static Result<Token> token_of(const json& answer, const char* field, WallTime expires) {
    if (!answer.contains(field) || !answer[field].is_string())
      return Status(Code::kCorrupt, "the token service's answer has no " + std::string(field));
    // It becomes a header field: no character may end the line.
    std::string text = answer[field].get<std::string>();
    // The metadata server pads its tokens with dots, which are part of them.
    for (char c : text) {
      if (static_cast<unsigned char>(c) <= 0x20 || static_cast<unsigned char>(c) >= 0x7f)
        return Status(Code::kCorrupt, "the token service's answer is not a token");
    }
    return Token{std::move(text), expires};
  }

  Result<json> ask(const WebRequest& request, const std::string& advice) {
    auto answer = tools_.web->fetch(request, stop_);
    if (!answer) return std::move(answer).error().annotate(request.method + " " + request.url);
    if (answer->status != 200) return refusal(request, *answer, advice);
    json object = json::parse(answer->body, nullptr, false);
    if (!object.is_object())
      return Status(Code::kCorrupt, request.url + " did not answer with a JSON object");
    return object;
  }

  static Status refusal(const WebRequest& request, const WebAnswer& answer,
                        const std::string& advice) {
    Code code = Code::kDenied;
    if (answer.status >= 500 || answer.status == 408) code = Code::kUnavailable;
    if (answer.status == 429) code = Code::kThrottled;
    std::string message =
        request.method + " " + request.url + ": HTTP " + std::to_string(answer.status);
    if (const std::string reason = reason_of(answer.body); !reason.empty())
      message += " (" + reason + ")";
    if (code == Code::kDenied) message += "; " + advice;
    return Status(code, std::move(message));
  }

  const GoogleTokenTools& tools_;
  const std::stop_token stop_;
  const WallTime now_;
};

}  // namespace

bool is_self_signed(const GoogleIdentity& identity) {
  return identity.kind == GoogleIdentity::Kind::kServiceAccount &&
         (identity.token_uri == "https://oauth2.googleapis.com/token" ||
          identity.token_uri == "https://accounts.google.com/o/oauth2/token");
}

Result<std::string> google_jwt(const GoogleIdentity& identity, const std::string& audience,
                               const std::string& scope, WallTime now) {
  json header = {{"alg", "RS256"}, {"typ", "JWT"}};
  if (!identity.private_key_id.empty()) header["kid"] = identity.private_key_id;
  const std::int64_t issued = now.time_since_epoch().count();
  json claims = {{"iss", identity.client_email},
                 {"scope", scope},
                 {"iat", issued},
                 {"exp", issued + kTokenLife.count()}};
  // With an audience it is an assertion for a token service; with a subject, a token by itself.
  if (audience.empty()) {
    claims["sub"] = identity.client_email;
  } else {
    claims["aud"] = audience;
  }
  std::string text = base64_url(header.dump()) + "." + base64_url(claims.dump());
  HEADRACE_TRY_ASSIGN(const std::string signature, identity.key->sign(text));
  return text + "." + base64_url(signature);
}

Result<Token> fetch_google_token(const GoogleIdentity& identity, const GoogleTokenTools& tools,
                                 const std::stop_token& stop) {
  return Fetcher(tools, stop).fetch(identity, kScope);
}

std::shared_ptr<TokenProvider> google_tokens(GoogleIdentity identity, std::string what,
                                             GoogleTokenTools tools) {
  RenewalOptions options;
  options.what = std::move(what);
  return renewing_tokens(std::move(options), [identity = std::move(identity),
                                              tools = std::move(tools)](std::stop_token stop) {
    return fetch_google_token(identity, tools, stop);
  });
}

}  // namespace headrace::auth
