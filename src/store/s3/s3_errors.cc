#include "store/s3/s3_errors.h"

#include "http/date.h"
#include "store/s3/s3_xml.h"
#include "store/vendor/xml_errors.h"

namespace headrace::s3 {
namespace {

using vendor::ErrorRow;
using vendor::kSlowDown;
using vendor::printable;

constexpr std::string_view kWrongRegion =
    "the bucket is in another region; set region= or AWS_REGION";

// Sources: "Error responses" of the S3 API reference, and what versitygw and MinIO were seen to
// send. Codes first, then statuses. 503 without a code is SlowDown: S3 has no body to say so in
// answers to HEAD.
constexpr ErrorRow kOwnErrors[] = {
    {"NoSuchBucket", 404, Code::kNotFound,
     "the bucket does not exist; check its name and the endpoint"},
    {"NoSuchVersion", 404, Code::kNotFound, "no such version of the object"},
    {"AccessDenied", 403, Code::kDenied,
     "the credentials do not allow this; check the bucket's policy and that these are the right "
     "credentials"},
    {"AllAccessDisabled", 403, Code::kDenied, "the bucket's owner disabled all access"},
    {"AccountProblem", 403, Code::kDenied, "the account has a problem; ask the vendor"},
    {"InvalidAccessKeyId", 403, Code::kDenied,
     "the store does not know this access key; check AWS_ACCESS_KEY_ID or the profile, and that it "
     "belongs to this endpoint"},
    {"XAdminUserNotFound", 404, Code::kDenied,  // versitygw's InvalidAccessKeyId
     "the store does not know this access key; check AWS_ACCESS_KEY_ID or the profile, and that it "
     "belongs to this "
     "endpoint"},
    {"SignatureDoesNotMatch", 403, Code::kDenied,
     "the secret key is wrong (check AWS_SECRET_ACCESS_KEY or the profile), or a proxy changed the "
     "request"},
    {"ExpiredToken", 400, Code::kDenied, "the temporary credentials have expired; get new ones"},
    {"ExpiredTokenException", 400, Code::kDenied,
     "the temporary credentials have expired; get new ones"},
    {"RequestExpired", 400, Code::kDenied, "the temporary credentials have expired; get new ones"},
    {"TokenRefreshRequired", 400, Code::kDenied,
     "the temporary credentials have expired; get new ones"},
    {"InvalidToken", 400, Code::kDenied,
     "the session token is wrong; check that AWS_SESSION_TOKEN belongs to the access key"},
    {"InvalidSecurity", 403, Code::kDenied, "the credentials are not valid"},
    {"SlowDown", 503, Code::kThrottled, kSlowDown},
    {"SlowDownRead", 503, Code::kThrottled, kSlowDown},
    {"SlowDownWrite", 503, Code::kThrottled, kSlowDown},
    {"RequestLimitExceeded", 503, Code::kThrottled, kSlowDown},
    {"Throttling", 400, Code::kThrottled, kSlowDown},
    {"ThrottlingException", 400, Code::kThrottled, kSlowDown},
    {"ServiceUnavailable", 503, Code::kUnavailable, ""},
    {"RequestTimeout", 400, Code::kUnavailable,
     "the store waited too long for the request's bytes"},
    {"XAmzContentSHA256Mismatch", 400, Code::kUnavailable,
     "bytes were damaged on the way to the store"},
    {"PermanentRedirect", 301, Code::kInvalidArgument, kWrongRegion},
    {"AuthorizationHeaderMalformed", 400, Code::kInvalidArgument, kWrongRegion},
    {"IllegalLocationConstraintException", 400, Code::kInvalidArgument, kWrongRegion},
    {"InvalidRequest", 400, Code::kInvalidArgument, ""},
    {"KeyTooLongError", 400, Code::kInvalidArgument, "keys have at most 1024 bytes"},
    {"InvalidObjectState", 403, Code::kUnsupported,
     "the object is in an archive class; restore it first (aws s3api restore-object), and wait "
     "until HEAD says that it is done"},
    {"XMinioStorageFull", 507, Code::kExhausted, "the store is full"},
    {"QuotaExceeded", 403, Code::kExhausted, "the store is full"},
    {"", 301, Code::kInvalidArgument, kWrongRegion},
    {"", 307, Code::kUnavailable, "the bucket is still being set up"},
    {"", 401, Code::kDenied, "the credentials were refused"},
    {"", 403, Code::kDenied, "access denied; check the credentials and the bucket's policy"},
    {"", 503, Code::kThrottled, kSlowDown},
    {"", 507, Code::kExhausted, "the store is full"},
    {"", 509, Code::kThrottled, kSlowDown},
};

constexpr auto kTable = vendor::joined(kOwnErrors, vendor::kSharedXmlErrors);

ErrorRow row_for(std::string_view s3_code, int status) noexcept {
  if (const auto row = vendor::find_error(kTable, s3_code, status)) return *row;
  // 2xx: only an error inside a success, or an answer of the wrong kind, comes here.
  if (!s3_code.empty()) return {"", status, Code::kUnavailable, ""};
  return {"", status, Code::kCorrupt,
          "not an answer to this request; check that the endpoint is an S3 store"};
}

void append_details(const ErrorBody& error, const ErrorRow& row, const http::ResponseHead& head,
                    const ErrorContext& context, std::string& message) {
  if (row.vendor_code == "RequestTimeTooSkewed") {
    const std::string_view date = head.header("date");
    if (!date.empty()) message += "; the store's clock says " + printable(date, 40);
  }
  if (row.advice == kWrongRegion) {
    std::string region = printable(head.header("x-amz-bucket-region"), 64);
    if (region.empty()) region = printable(error.region, 64);
    if (!region.empty()) message += " to \"" + region + "\"";
    message += " (now \"" + std::string(context.region) + "\")";
    if (!error.endpoint.empty()) message += "; its endpoint is " + printable(error.endpoint, 200);
  }
  if (row.code == Code::kDenied && !context.credentials_source.empty()) {
    message += "; credentials: " + std::string(context.credentials_source);
  }
}

}  // namespace

std::span<const ErrorRow> error_table() noexcept { return kTable; }

Trouble trouble_of(const http::ResponseHead& head, std::string_view body) {
  if (head.status < 300 || head.status > 403) return Trouble::kNone;
  const std::string code = parse_error_body(body).code;
  for (const std::string_view expired : {"ExpiredToken", "ExpiredTokenException", "RequestExpired",
                                         "TokenRefreshRequired", "InvalidToken"}) {
    if (code == expired) return Trouble::kExpiredCredentials;
  }
  if (code == "RequestTimeTooSkewed") return Trouble::kClock;
  // Answers to HEAD have no body: there the field with the bucket's region is the sign.
  const bool is_wrong_region = code.empty() ? (head.status == 301 || head.status == 400)
                                            : row_for(code, head.status).advice == kWrongRegion;
  if (is_wrong_region && !named_region(head, body).empty()) return Trouble::kRegion;
  return Trouble::kNone;
}

Trouble likely_trouble(const http::ResponseHead& head, std::string_view body, const Signed& by) {
  constexpr std::chrono::minutes kWellWithin{5};  // S3 allows 15
  if (!body.empty()) return Trouble::kNone;
  if (head.status == 400 && by.is_temporary && named_region(head, body).empty())
    return Trouble::kExpiredCredentials;
  const auto date = http::parse_http_date(head.header("date"));
  if (head.status == 403 && date && std::chrono::abs(*date - by.at) > kWellWithin)
    return Trouble::kClock;
  return Trouble::kNone;
}

std::string named_region(const http::ResponseHead& head, std::string_view body) {
  const std::string_view field = head.header("x-amz-bucket-region");
  return field.empty() ? parse_error_body(body).region : std::string(field);
}

Status code_status(std::string_view what, const ErrorBody& error, const ErrorContext& context) {
  // 400 is the status of the rows that apply to a code without one.
  const ErrorRow row = row_for(error.code, 400);
  std::string message(what);
  message += ": " + printable(error.code, 64) + ", " + std::string(row.advice);
  append_details(error, row, http::ResponseHead(), context, message);
  if (row.advice.empty()) message += "the store says \"" + printable(error.message, 200) + "\"";
  return Status(row.code, std::move(message));
}

Status error_status(std::string_view what, const http::ResponseHead& head, std::string_view body,
                    const ErrorContext& context) {
  const ErrorBody error = parse_error_body(body);
  const ErrorRow row = row_for(error.code, head.status);
  std::string message(what);
  message += ": ";
  if (!error.code.empty()) message += printable(error.code, 64) + ", ";
  message += row.advice;
  append_details(error, row, head, context, message);
  if (row.advice.empty()) {
    // Only then the server's own words: some servers repeat parts of the signature in theirs.
    const std::string_view text =
        error.message.empty() && error.code.empty() ? body : std::string_view(error.message);
    message += text.empty() ? "no explanation" : "the store says \"" + printable(text, 200) + "\"";
  }
  message += " (HTTP " + std::to_string(head.status);
  std::string_view id = head.header("x-amz-request-id");
  if (id.empty()) id = error.request_id;
  if (!id.empty()) message += ", request id " + printable(id, 64);
  message += ")";
  return Status(row.code, std::move(message));
}

}  // namespace headrace::s3
