// One fetch by a plan (aws_plan.h); nothing is kept here, renewing.h asks again before the keys
// end. Every source ends with the same check: what goes into a header must fit one, since a line
// break in a key or token would be a header of its own.
//
// Codes decide what follows: kUnavailable and kThrottled are tried again, kDenied is not and goes
// to the user with what to do about it. So a status of 4xx, but for 429, counts as a refusal.
#include "auth/aws_fetch.h"

#include <nlohmann/json.hpp>

#include "auth/aws_sts.h"
#include "base/atomic_file.h"
#include "base/strings.h"
#include "http/date.h"
#include "http/fields.h"
#include "http/uri.h"

namespace headrace::auth {
namespace {

using nlohmann::json;

std::string text_of(const json& object, const char* key) {
  if (!object.is_object()) return {};
  const auto it = object.find(key);
  return it != object.end() && it->is_string() ? it->get<std::string>() : std::string();
}

json parse_json(std::string_view text) { return json::parse(text, nullptr, false); }

std::string without_line_end(std::string text) {
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r' || text.back() == ' '))
    text.pop_back();
  return text;
}

bool fits_header(std::string_view text) {
  for (char c : text) {
    if (c < ' ' || c > '~') return false;
  }
  return true;
}

/// One line of somebody's message, without control characters.
std::string first_line(std::string_view text) {
  std::string line(text.substr(0, std::min(text.find('\n'), std::size_t{300})));
  for (char& c : line) {
    if (c < ' ' || c > '~') c = ' ';
  }
  return line;
}

/// What a status other than 200 means for one who may ask again.
Code code_of_status(int status) {
  if (status == 429) return Code::kThrottled;
  return status >= 500 ? Code::kUnavailable : Code::kDenied;
}

class Fetcher {
 public:
  Fetcher(const AwsServices& services, const AwsWorld& world, std::stop_token stop)
      : services_(services), world_(world), stop_(std::move(stop)) {}

  Result<Credentials> fetch(const AwsPlan& plan) {
    auto found = dispatch(plan);
    if (!found) {
      return std::move(found).error().annotate(std::string(source_name(plan.kind)) + " (" +
                                               plan.source + ")");
    }
    for (const std::string* part : {&found->access_key_id, &found->session_token}) {
      if (!fits_header(*part) || part->find(' ') != std::string::npos) {
        return Status(Code::kDenied, plan.source +
                                         " gives an access key id or session token with "
                                         "a space or control character");
      }
    }
    return found;
  }

  Result<std::string> caller(const Credentials& keys) {
    HEADRACE_TRY_ASSIGN(const WebAnswer answer, call_sts({{"Action", "GetCallerIdentity"}}, &keys));
    return detail::parse_caller_identity(answer);
  }

 private:
  Result<Credentials> dispatch(const AwsPlan& plan) {
    switch (plan.kind) {
      case AwsSource::kStatic:
        return plan.keys;
      case AwsSource::kWebIdentity:
        return web_identity(plan.role);
      case AwsSource::kAssumeRole:
        return assume_role(plan);
      case AwsSource::kSso:
        return sso(plan.sso);
      case AwsSource::kProcess:
        return process(plan.command);
      case AwsSource::kContainer:
        return container(plan.container);
      case AwsSource::kInstance:
        return instance(plan.is_instance_certain);
      case AwsSource::kNone:
        break;
    }
    return Status(Code::kDenied, "no credentials are configured");
  }

  // --- STS ---

  Result<WebAnswer> call_sts(const detail::StsForm& form, const Credentials* keys) {
    HEADRACE_TRY_ASSIGN(const WebRequest request,
                        detail::sts_request(form, services_, keys, world_.clock->wall_now()));
    return world_.web->fetch(request, stop_);
  }

  detail::StsForm role_form(const char* action, const AwsRole& role) const {
    const auto now = world_.clock->wall_now().time_since_epoch().count();
    detail::StsForm form = {
        {"Action", action},
        {"RoleArn", role.arn},
        {"RoleSessionName",
         role.session_name.empty() ? "headrace-" + std::to_string(now) : role.session_name}};
    if (role.duration_s > 0) form.emplace_back("DurationSeconds", std::to_string(role.duration_s));
    if (!role.external_id.empty()) form.emplace_back("ExternalId", role.external_id);
    return form;
  }

  Result<Credentials> web_identity(const AwsRole& role) {
    const auto token = world_.read_file(role.token_file);
    if (!token || without_line_end(*token).empty()) {
      return Status(Code::kDenied, "cannot read a token from " + role.token_file +
                                       "; check AWS_WEB_IDENTITY_TOKEN_FILE and the mount of the "
                                       "service account's token");
    }
    auto form = role_form("AssumeRoleWithWebIdentity", role);
    form.emplace_back("WebIdentityToken", without_line_end(*token));
    HEADRACE_TRY_ASSIGN(const WebAnswer answer, call_sts(form, nullptr));
    auto found = detail::parse_sts_credentials(answer);
    if (!found) return std::move(found).error().annotate(role.arn);
    return found;
  }

  Result<Credentials> assume_role(const AwsPlan& plan) {
    HEADRACE_TRY_ASSIGN(const Credentials base, fetch(*plan.base));
    HEADRACE_TRY_ASSIGN(const WebAnswer answer,
                        call_sts(role_form("AssumeRole", plan.role), &base));
    auto found = detail::parse_sts_credentials(answer);
    if (!found) return std::move(found).error().annotate(plan.role.arn);
    return found;
  }

  // --- IAM Identity Center ---

  Result<Credentials> sso(const AwsSso& sso) {
    HEADRACE_TRY_ASSIGN(const std::string token, sso_token(sso));
    const std::string base = services_.sso_endpoint.empty()
                                 ? "https://portal.sso." + sso.region + ".amazonaws.com"
                                 : services_.sso_endpoint;
    WebRequest request;
    request.url = base + "/federation/credentials?role_name=" +
                  http::encode(sso.role_name, http::Slash::kEscape) +
                  "&account_id=" + http::encode(sso.account_id, http::Slash::kEscape);
    request.headers = {{"x-amz-sso_bearer_token", token}};
    HEADRACE_TRY_ASSIGN(const WebAnswer answer, world_.web->fetch(request, stop_));
    if (answer.status == 401) return login_again(sso, "the session has ended");
    const json body = parse_json(answer.body);
    if (answer.status != 200) {
      return Status(code_of_status(answer.status),
                    "HTTP " + std::to_string(answer.status) + " " +
                        first_line(text_of(body, "message")) + "; check that " + sso.role_name +
                        " in account " + sso.account_id + " is assigned to you");
    }
    const json keys = body.is_object() && body.contains("roleCredentials") ? body["roleCredentials"]
                                                                           : json::object();
    Credentials found{text_of(keys, "accessKeyId"), text_of(keys, "secretAccessKey"),
                      text_of(keys, "sessionToken"), std::nullopt};
    if (keys.contains("expiration") && keys["expiration"].is_number()) {
      found.expires = WallTime(std::chrono::seconds(keys["expiration"].get<std::int64_t>() / 1000));
    }
    if (found.access_key_id.empty() || found.secret_access_key.empty() || !found.expires)
      return Status(Code::kDenied, "answer without keys or expiration");
    return found;
  }

  static Status login_again(const AwsSso& sso, const std::string& why) {
    return Status(Code::kDenied, why + "; run: " + sso.login);
  }

  /// The token in the cache of `aws sso login`; renewed when it can be and is about to end.
  Result<std::string> sso_token(const AwsSso& sso) {
    const auto text = world_.read_file(sso.cache_file);
    if (!text) return login_again(sso, "nobody is logged in (no file " + sso.cache_file + ")");
    json cache = parse_json(*text);
    std::string token = text_of(cache, "accessToken");
    const auto expires = parse_timestamp(text_of(cache, "expiresAt"));
    if (token.empty() || !expires) return login_again(sso, sso.cache_file + " holds no token");
    if (!fits_header(token)) return login_again(sso, sso.cache_file + " holds a malformed token");
    const WallTime now = world_.clock->wall_now();
    // As botocore: renewed in its last 15 minutes.
    if (now < *expires - std::chrono::minutes(15)) return token;
    std::string why = "the session has ended";
    auto renewed = renew_sso_token(sso, cache);
    if (renewed) return renewed;
    why += " and cannot be renewed (" + std::string(renewed.error().message()) + ")";
    if (now < *expires) return token;
    if (is_retryable(renewed.error().code())) return renewed;
    return login_again(sso, why);
  }

  Result<std::string> renew_sso_token(const AwsSso& sso, json& cache) {
    const WallTime now = world_.clock->wall_now();
    const auto registered = parse_timestamp(text_of(cache, "registrationExpiresAt"));
    const std::string refresh = text_of(cache, "refreshToken");
    if (sso.session.empty() || refresh.empty() || text_of(cache, "clientId").empty())
      return Status(Code::kDenied, "it has no refresh token");
    if (!registered || now >= *registered)
      return Status(Code::kDenied, "the client's registration has ended");
    const std::string base = services_.sso_oidc_endpoint.empty()
                                 ? "https://oidc." + sso.region + ".amazonaws.com"
                                 : services_.sso_oidc_endpoint;
    WebRequest request;
    request.method = "POST";
    request.url = base + "/token";
    request.headers = {{"content-type", "application/json"}};
    request.body = json{
        {"grantType", "refresh_token"},
        {"clientId", text_of(cache, "clientId")},
        {"clientSecret", text_of(cache, "clientSecret")},
        {"refreshToken",
         refresh}}.dump(-1, ' ', false, json::error_handler_t::replace);
    HEADRACE_TRY_ASSIGN(const WebAnswer answer, world_.web->fetch(request, stop_));
    const json body = parse_json(answer.body);
    const std::string token = text_of(body, "accessToken");
    if (answer.status != 200 || token.empty() || !fits_header(token)) {
      return Status(
          answer.status == 200 ? Code::kDenied : code_of_status(answer.status),
          "HTTP " + std::to_string(answer.status) + " " + first_line(text_of(body, "error")));
    }
    std::int64_t life_s = 0;
    if (body.contains("expiresIn") && body["expiresIn"].is_number())
      life_s = body["expiresIn"].get<std::int64_t>();
    cache["accessToken"] = token;
    cache["expiresAt"] = iso_seconds(now + std::chrono::seconds(life_s));
    if (const std::string next = text_of(body, "refreshToken"); !next.empty())
      cache["refreshToken"] = next;
    // Refresh tokens may serve once: the next process needs the new one. Failing to keep it costs
    // a login, not this run.
    if (world_.write_file) {
      (void)world_.write_file(sso.cache_file,
                              cache.dump(-1, ' ', false, json::error_handler_t::replace));
    }
    return token;
  }

  static std::string iso_seconds(WallTime time) {
    return http::format_iso_date(time).substr(0, 19) + "Z";
  }

  // --- credential_process ---

  Result<Credentials> process(const std::string& command) {
    HEADRACE_TRY_ASSIGN(const auto arguments, split_command(command));
    const std::string what = "credential_process \"" + arguments.front() + "\"";
    auto answer = world_.processes->run(arguments, {}, stop_);
    if (!answer) return std::move(answer).error().annotate(what);
    if (answer->exit_code != 0) {
      return Status(Code::kDenied, what + " ended with " + std::to_string(answer->exit_code) +
                                       ": " + first_line(answer->errors));
    }
    const json body = parse_json(answer->output);
    if (!body.is_object()) return Status(Code::kDenied, what + " did not print a JSON object");
    if (!body.contains("Version") || body["Version"] != 1)
      return Status(Code::kDenied, what + " printed another version than 1 of the format");
    return keys_of_json(body, "SessionToken", what);
  }

  /// {"AccessKeyId", "SecretAccessKey", token, "Expiration"}, as process, container and instance
  /// write them.
  static Result<Credentials> keys_of_json(const json& body, const char* token_key,
                                          const std::string& what) {
    Credentials found{text_of(body, "AccessKeyId"), text_of(body, "SecretAccessKey"),
                      text_of(body, token_key), std::nullopt};
    if (found.access_key_id.empty() || found.secret_access_key.empty())
      return Status(Code::kDenied, what + ": answer without AccessKeyId or SecretAccessKey");
    const std::string expires = text_of(body, "Expiration");
    found.expires = parse_timestamp(expires);
    if (!expires.empty() && !found.expires)
      return Status(Code::kDenied, what + ": Expiration is not a time of ISO 8601");
    return found;
  }

  // --- container ---

  Result<Credentials> container(const AwsContainer& container) {
    WebRequest request;
    request.url = container.url;
    // The plan lets plain HTTP go to this machine only.
    request.is_local = request.url.starts_with("http://");
    request.headers = {{"accept", "application/json"}};
    request.timeout = std::chrono::seconds(2);
    std::string token = container.token;
    if (!container.token_file.empty()) {
      const auto text = world_.read_file(container.token_file);
      if (!text) {
        return Status(Code::kDenied, "cannot read AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE, " +
                                         container.token_file);
      }
      token = without_line_end(*text);
    }
    if (!fits_header(token)) {
      return Status(Code::kDenied,
                    "the authorization token for the endpoint has a line end or control character");
    }
    if (!token.empty()) request.headers.emplace_back("authorization", token);
    HEADRACE_TRY_ASSIGN(const WebAnswer answer, world_.web->fetch(request, stop_));
    const json body = parse_json(answer.body);
    if (answer.status != 200) {
      return Status(code_of_status(answer.status), "HTTP " + std::to_string(answer.status) + " " +
                                                       first_line(text_of(body, "message")) +
                                                       "; check the role of the task or pod");
    }
    return keys_of_json(body, "Token", "endpoint");
  }

  // --- EC2 ---

  Result<Credentials> instance(bool is_certain) {
    HEADRACE_TRY_ASSIGN(const std::string token, metadata_token(is_certain));
    constexpr const char* kPath = "/latest/meta-data/iam/security-credentials/";
    HEADRACE_TRY_ASSIGN(const WebAnswer role, metadata(kPath, token));
    if (role.status == 404) {
      return Status(Code::kDenied,
                    "this instance has no role; attach an instance profile, or set keys");
    }
    const std::string name = first_line(role.body);
    if (role.status != 200 || name.empty()) return metadata_error(role);
    HEADRACE_TRY_ASSIGN(const WebAnswer answer,
                        metadata(kPath + http::encode(name, http::Slash::kEscape), token));
    if (answer.status != 200) return metadata_error(answer);
    const json body = parse_json(answer.body);
    const std::string code = text_of(body, "Code");
    if (!code.empty() && code != "Success") {
      return Status(code == "AssumeRoleUnauthorizedAccess" ? Code::kDenied : Code::kUnavailable,
                    "role " + name + ": " + code + " " + first_line(text_of(body, "Message")));
    }
    HEADRACE_TRY_ASSIGN(Credentials found, keys_of_json(body, "Token", "role " + name));
    // While the service behind it is out of order, the metadata service hands out expired ones;
    // the stores take them for the time being. Source: AWS SDKs' "static stability".
    const WallTime now = world_.clock->wall_now();
    if (found.expires && *found.expires <= now + std::chrono::minutes(1))
      found.expires = now + std::chrono::minutes(10);
    return found;
  }

  static Status metadata_error(const WebAnswer& answer) {
    std::string message = "HTTP " + std::to_string(answer.status);
    if (answer.status == 403) message += "; the instance's metadata options forbid it";
    if (answer.status == 401) {
      message +=
          "; version 2 is required, but its token cannot be had from in here: raise the "
          "instance's metadata hop limit to 2";
    }
    return Status(code_of_status(answer.status), std::move(message));
  }

  /// Empty: the service speaks only version 1, and that is allowed.
  Result<std::string> metadata_token(bool is_certain) {
    WebRequest request;
    request.method = "PUT";
    request.url = services_.metadata_endpoint + "/latest/api/token";
    request.is_local = true;
    request.headers = {{"x-aws-ec2-metadata-token-ttl-seconds", "21600"}};
    request.timeout = std::chrono::seconds(1);
    auto answer = world_.web->fetch(request, stop_);
    if (!answer) {
      if (!is_retryable(answer.error().code())) return std::move(answer).error();
      if (!is_certain) {
        return Status(Code::kDenied,
                      "nobody answers there (" + std::string(answer.error().message()) + ")");
      }
      // In a container the answer may be one network hop too far away; version 1 has no limit.
      if (services_.is_metadata_v1_disabled) return std::move(answer).error();
      return std::string();
    }
    const std::string token = without_line_end(answer->body);
    if (answer->status == 200 && fits_header(token)) return token;
    const bool is_old = answer->status == 404 || answer->status == 405 || answer->status == 403;
    if (is_old && !services_.is_metadata_v1_disabled) return std::string();
    return metadata_error(*answer);
  }

  Result<WebAnswer> metadata(const std::string& path, const std::string& token) {
    WebRequest request;
    request.url = services_.metadata_endpoint + path;
    request.is_local = true;
    request.timeout = std::chrono::seconds(2);
    if (!token.empty()) request.headers = {{"x-aws-ec2-metadata-token", token}};
    return world_.web->fetch(request, stop_);
  }

  const AwsServices& services_;
  const AwsWorld& world_;
  const std::stop_token stop_;
};

}  // namespace

AwsWorld local_aws_world(std::shared_ptr<WebClient> web, const Environment& environment,
                         Clock* clock) {
  return {std::move(web), local_process_runner(environment), local_file_reader(),
          atomic_write_private_file, clock != nullptr ? clock : &system_clock()};
}

Result<Credentials> fetch_credentials(const AwsPlan& plan, const AwsServices& services,
                                      const AwsWorld& world, std::stop_token stop) {
  return Fetcher(services, world, std::move(stop)).fetch(plan);
}

Result<std::string> caller_identity(const Credentials& credentials, const AwsServices& services,
                                    const AwsWorld& world, std::stop_token stop) {
  return Fetcher(services, world, std::move(stop)).caller(credentials);
}

std::optional<WallTime> parse_timestamp(std::string_view text) {
  // "2026-11-21T14:29:23+00:00": the sign is at the same place from the end.
  if (text.size() > 6 && text[text.size() - 3] == ':' &&
      (text[text.size() - 6] == '+' || text[text.size() - 6] == '-')) {
    const auto hours = parse_decimal<unsigned>(text.substr(text.size() - 5, 2));
    const auto minutes = parse_decimal<unsigned>(text.substr(text.size() - 2));
    const auto local = http::parse_iso_date(std::string(text.substr(0, text.size() - 6)) + "Z");
    if (!hours || !minutes || !local) return std::nullopt;
    const std::chrono::seconds offset = std::chrono::minutes(*hours * 60 + *minutes);
    return text[text.size() - 6] == '+' ? *local - offset : *local + offset;
  }
  if (text.ends_with("UTC")) return http::parse_iso_date(std::string(text.substr(0, 19)) + "Z");
  return http::parse_iso_date(text);
}

}  // namespace headrace::auth
