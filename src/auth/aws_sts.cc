#include "auth/aws_sts.h"

#include <pugixml.hpp>

#include "auth/aws_fetch.h"
#include "http/date.h"
#include "http/uri.h"

namespace headrace::auth::detail {
namespace {

std::string endpoint_of(const AwsServices& services) {
  if (!services.sts_endpoint.empty()) return services.sts_endpoint;
  if (services.region.empty()) return "https://sts.amazonaws.com";
  const bool is_china = services.region.starts_with("cn-");
  return "https://sts." + services.region + ".amazonaws.com" + (is_china ? ".cn" : "");
}

/// What can be done about STS's more common refusals.
std::string_view hint_for(std::string_view code) {
  if (code == "AccessDenied")
    return "; let the role's trust policy name the caller, and the caller's policy allow "
           "sts:AssumeRole";
  if (code == "ExpiredToken" || code == "ExpiredTokenException")
    return "; the token has expired: renew it";
  if (code == "InvalidIdentityToken")
    return "; check the identity provider of the account and the token file";
  if (code == "SignatureDoesNotMatch" || code == "InvalidClientTokenId")
    return "; check the keys, and the clock of this machine";
  if (code == "RegionDisabledException") return "; enable STS in this region, or set another one";
  return "";
}

Status error_of(const WebAnswer& answer, const pugi::xml_document& document) {
  const pugi::xml_node error = document.child("ErrorResponse").child("Error");
  const std::string code = error.child_value("Code");
  std::string message = "STS: HTTP " + std::to_string(answer.status);
  if (!code.empty()) message += " " + code + ": " + error.child_value("Message");
  if (code == "Throttling" || answer.status == 429) return Status(Code::kThrottled, message);
  if (answer.status >= 500 || code == "IDPCommunicationError")
    return Status(Code::kUnavailable, message);
  return Status(Code::kDenied, message + std::string(hint_for(code)));
}

/// The node `name` below the one element of an answer.
Result<pugi::xml_node> result_node(const WebAnswer& answer, pugi::xml_document& document,
                                   const char* name) {
  document.load_buffer(answer.body.data(), answer.body.size());
  if (answer.status != 200) return error_of(answer, document);
  const pugi::xml_node node = document.document_element().first_child().child(name);
  if (node.empty()) {
    return Status(Code::kDenied, std::string("STS: answer without ") + name +
                                     "; check that AWS_ENDPOINT_URL_STS is an STS service");
  }
  return node;
}

}  // namespace

Result<WebRequest> sts_request(const StsForm& form, const AwsServices& services,
                               const Credentials* keys, WallTime now) {
  WebRequest request;
  request.method = "POST";
  HEADRACE_TRY_ASSIGN(const http::HttpUrl url, http::parse_http_url(endpoint_of(services)));
  const std::string path = http::encode(url.path, http::Slash::kKeep) + "/";
  request.url = std::string(url.use_tls ? "https://" : "http://") + url.authority() + path;
  for (const auto& [name, value] : form) {
    request.body += name + "=" + http::encode(value, http::Slash::kEscape) + "&";
  }
  request.body += "Version=2011-06-15";
  const std::string type = "application/x-www-form-urlencoded; charset=utf-8";
  request.headers = {{"content-type", type}};
  if (keys == nullptr) return request;

  HEADRACE_TRY_ASSIGN(
      const auto signer,
      SigV4Signer::create(services.region.empty() ? "us-east-1" : services.region, "sts"));
  char date[16];
  http::write_amz_date(now, date);
  const std::string host = url.authority();
  std::vector<http::Field> fields = {
      {"content-type", type}, {"host", host}, {"x-amz-date", std::string_view(date, sizeof(date))}};
  if (!keys->session_token.empty()) fields.push_back({"x-amz-security-token", keys->session_token});
  const std::string payload_hash = sha256_hex(request.body);
  std::string authorization;
  signer->append_authorization({"POST", path, "", fields, payload_hash}, *keys, now, authorization);
  request.headers.emplace_back("x-amz-date", std::string(date, sizeof(date)));
  if (!keys->session_token.empty())
    request.headers.emplace_back("x-amz-security-token", keys->session_token);
  request.headers.emplace_back("authorization", std::move(authorization));
  return request;
}

Result<Credentials> parse_sts_credentials(const WebAnswer& answer) {
  pugi::xml_document document;
  HEADRACE_TRY_ASSIGN(const pugi::xml_node node, result_node(answer, document, "Credentials"));
  Credentials found{node.child_value("AccessKeyId"), node.child_value("SecretAccessKey"),
                    node.child_value("SessionToken"),
                    parse_timestamp(node.child_value("Expiration"))};
  if (found.access_key_id.empty() || found.secret_access_key.empty() || !found.expires)
    return Status(Code::kDenied, "STS: answer without keys or expiration");
  return found;
}

Result<std::string> parse_caller_identity(const WebAnswer& answer) {
  pugi::xml_document document;
  HEADRACE_TRY_ASSIGN(const pugi::xml_node node, result_node(answer, document, "Arn"));
  return std::string(node.child_value());
}

}  // namespace headrace::auth::detail
