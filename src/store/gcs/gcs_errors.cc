#include "store/gcs/gcs_errors.h"

#include <nlohmann/json.hpp>
#include <pugixml.hpp>

#include "base/strings.h"
#include "store/vendor/xml_errors.h"

namespace headrace::gcs {
namespace {

using vendor::ErrorRow;
using vendor::kSlowDown;
using vendor::printable;

constexpr std::string_view kBusy = "the store is busy";
constexpr std::string_view kBadToken = "Google refused the credentials; get new ones";

// Source: "HTTP status and error codes for XML" of Google's reference; retryable are 408, 429 and
// 5xx ("Retry strategy"). Codes first, then statuses.
constexpr ErrorRow kOwnErrors[] = {
    {"NoSuchBucket", 404, Code::kNotFound, "the bucket does not exist; check its name"},
    {"NoSuchVersion", 404, Code::kNotFound, "no such generation of the object"},
    {"AccessDenied", 403, Code::kDenied,
     "the credentials do not allow this; check the bucket's IAM policy (reading needs "
     "roles/storage.objectViewer)"},
    {"AccountProblem", 403, Code::kDenied, "the account has a problem; ask Google"},
    {"UserProjectAccountProblem", 403, Code::kDenied,
     "the project that pays has a billing problem"},
    {"UserProjectAccessDenied", 403, Code::kDenied,
     "the credentials may not use the project that pays (serviceusage.services.use)"},
    {"UserProjectMissing", 400, Code::kDenied,
     "the bucket is requester-pays; set requester_pays and GOOGLE_CLOUD_PROJECT"},
    {"UserProjectInconsistent", 400, Code::kInvalidArgument, ""},
    {"AuthenticationRequired", 401, Code::kDenied, kBadToken},
    {"InvalidSecurity", 403, Code::kDenied, kBadToken},
    {"InvalidAuthentication", 401, Code::kDenied, kBadToken},
    {"ExpiredToken", 400, Code::kDenied, "the signature or token has expired"},
    {"InvalidAccessKeyId", 403, Code::kDenied,
     "Google does not know this HMAC access id; check GS_ACCESS_KEY_ID"},
    {"SignatureDoesNotMatch", 403, Code::kDenied,
     "the HMAC secret is wrong (check GS_SECRET_ACCESS_KEY), or a proxy changed the request"},
    {"NotLoggedIn", 403, Code::kDenied, kBadToken},
    {"SlowDown", 429, Code::kThrottled, kSlowDown},
    {"RateLimitExceeded", 429, Code::kThrottled, kSlowDown},
    {"ServiceUnavailable", 503, Code::kUnavailable, kBusy},
    {"BackendError", 500, Code::kUnavailable, ""},
    {"RequestTimeout", 408, Code::kUnavailable,
     "the store waited too long for the request's bytes"},
    {"CrcMismatch", 400, Code::kUnavailable, "bytes were damaged on the way to the store"},
    {"InvalidObjectName", 400, Code::kInvalidArgument, ""},
    {"ExcessHeaderValues", 400, Code::kInvalidArgument, ""},
    {"KeyTooLong", 400, Code::kInvalidArgument, "keys have at most 1024 bytes"},
    {"MalformedCompleteMultipartUploadRequest", 400, Code::kInvalidArgument, ""},
    {"PermanentRedirect", 301, Code::kInvalidArgument, "the endpoint is wrong for this bucket"},
    {"RetentionPolicyNotMet", 403, Code::kDenied, "a retention policy protects the object"},
    {"ObjectUnderActiveHold", 403, Code::kDenied, "a hold protects the object"},
    {"", 301, Code::kInvalidArgument, "the endpoint is wrong for this bucket"},
    {"", 401, Code::kDenied, kBadToken},
    {"", 403, Code::kDenied, "access denied; check the credentials and the bucket's IAM policy"},
    {"", 503, Code::kUnavailable, kBusy},
};

constexpr auto kTable = vendor::joined(kOwnErrors, vendor::kSharedXmlErrors);

ErrorRow row_for(std::string_view google_code, int status) noexcept {
  if (const auto row = vendor::find_error(kTable, google_code, status)) return *row;
  // 2xx: an error inside a success, or an answer of the wrong kind.
  if (!google_code.empty()) return {"", status, Code::kUnavailable, ""};
  return {"", status, Code::kCorrupt,
          "not an answer to this request; check that the endpoint is Google Cloud Storage"};
}

}  // namespace

std::span<const ErrorRow> error_table() noexcept { return kTable; }

ErrorBody parse_error_body(std::string_view body) {
  ErrorBody error;
  body = trim(body, kWhiteSpace);
  if (body.starts_with('{')) {
    const auto json = nlohmann::json::parse(body, nullptr, false);
    if (json.is_object() && json.contains("error") && json["error"].is_object()) {
      const auto& inner = json["error"];
      if (inner.contains("message") && inner["message"].is_string())
        error.message = inner["message"].get<std::string>();
    }
    return error;
  }
  pugi::xml_document document;
  document.load_buffer(body.data(), body.size());
  const pugi::xml_node root = document.child("Error");
  error.code = root.child_value("Code");
  error.message = root.child_value("Message");
  if (const std::string_view details = root.child_value("Details"); !details.empty())
    error.message += " " + std::string(details);
  return error;
}

Status error_status(std::string_view what, const http::ResponseHead& head, std::string_view body,
                    std::string_view credentials_source) {
  const ErrorBody error = parse_error_body(body);
  const ErrorRow row = row_for(error.code, head.status);
  std::string message(what);
  message += ": ";
  if (!row.advice.empty()) message += std::string(row.advice);
  const std::string_view text =
      error.code.empty() && error.message.empty() ? body : std::string_view(error.message);
  if (row.advice.empty() || (row.code == Code::kDenied && !text.empty())) {
    if (!row.advice.empty()) message += "; ";
    message += text.empty() ? "no explanation" : "the store says \"" + printable(text, 200) + "\"";
  }
  if (row.code == Code::kDenied && !credentials_source.empty())
    message += "; credentials: " + std::string(credentials_source);
  message += " (HTTP " + std::to_string(head.status);
  if (!error.code.empty()) message += " " + printable(error.code, 64);
  const std::string_view id = head.header("x-guploader-uploadid");
  if (!id.empty()) message += ", request id " + printable(id, 100);
  return Status(row.code, message + ")");
}

bool is_token_refused(const http::ResponseHead& head, std::string_view body) {
  if (head.status == 401) return true;
  if (head.status != 400 && head.status != 403) return false;
  const std::string code = parse_error_body(body).code;
  return code == "ExpiredToken" || code == "InvalidSecurity";
}

}  // namespace headrace::gcs
