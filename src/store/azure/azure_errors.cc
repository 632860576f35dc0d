// The code decides, where there is one: the same status stands for things that differ in what the
// caller can do (409 is an object that exists, a lease, a copy in progress, an archived blob).
// Statuses serve for answers without a body, as to HEAD, and from proxies.
//
// Messages have our advice; the service's own words come only where there is none, since they may
// repeat parts of a signature.
#include "store/azure/azure_errors.h"

#include "store/azure/azure_xml.h"
#include "store/vendor/error_table.h"

namespace headrace::azure {
namespace {

using vendor::ErrorRow;
using vendor::printable;

constexpr std::string_view kSlowDown = "the service asks for a lower request rate";
constexpr std::string_view kExists =
    "the object exists already, or is not the version that was expected";
constexpr std::string_view kDamaged = "bytes were damaged on the way to the service";
constexpr std::string_view kWrongKey =
    "the account key or SAS is wrong or has expired, or this machine's clock is wrong";
constexpr std::string_view kNoRight =
    "the credentials do not allow this; it takes a role such as Storage Blob Data Contributor, or "
    "a SAS with the permission";
constexpr std::string_view kLeased = "another client holds a lease on the blob or container";
constexpr std::string_view kBusyCopy = "another operation on the object is in progress";
constexpr std::string_view kArchived =
    "the object is in the archive tier; rehydrate it first (az storage blob set-tier --tier Hot), "
    "and wait until it is done";

// Sources: "Common REST API error codes" and "Blob service error codes" of the Azure Storage REST
// API reference, and what Azurite was seen to send. Codes first, then statuses.
constexpr ErrorRow kTable[] = {
    {"BlobNotFound", 404, Code::kNotFound, "no such object"},
    {"ResourceNotFound", 404, Code::kNotFound, "no such object or container"},
    {"PathNotFound", 404, Code::kNotFound, "no such object"},
    {"ContainerNotFound", 404, Code::kNotFound,
     "the container does not exist; check its name, the account and the endpoint"},
    {"ContainerDisabled", 409, Code::kDenied, "the container was disabled by its owner"},
    {"AccountIsDisabled", 403, Code::kDenied, "the storage account is disabled"},
    {"AuthenticationFailed", 403, Code::kDenied, kWrongKey},
    {"InvalidAuthenticationInfo", 400, Code::kDenied, kWrongKey},
    {"NoAuthenticationInformation", 401, Code::kDenied,
     "the service wants credentials; the container is not public"},
    {"PublicAccessNotPermitted", 409, Code::kDenied,
     "the storage account allows no anonymous requests"},
    {"AuthorizationFailure", 403, Code::kDenied,
     "refused by the account's network rules, or the credentials do not allow this"},
    {"AuthorizationPermissionMismatch", 403, Code::kDenied, kNoRight},
    {"AuthorizationResourceTypeMismatch", 403, Code::kDenied, kNoRight},
    {"AuthorizationServiceMismatch", 403, Code::kDenied, kNoRight},
    {"AuthorizationProtocolMismatch", 403, Code::kDenied, "the SAS is for https only"},
    {"AuthorizationSourceIPMismatch", 403, Code::kDenied,
     "the SAS is for clients with other addresses"},
    {"InsufficientAccountPermissions", 403, Code::kDenied, kNoRight},
    {"KeyBasedAuthenticationNotPermitted", 403, Code::kDenied,
     "the storage account allows no account keys; use a token (managed identity, workload "
     "identity)"},
    {"AccountRequiresHttps", 400, Code::kInvalidArgument,
     "the storage account takes https only; check the endpoint"},
    {"ServerBusy", 503, Code::kThrottled, kSlowDown},
    {"TooManyRequests", 429, Code::kThrottled, kSlowDown},
    {"OperationTimedOut", 500, Code::kUnavailable, "the service needed too long"},
    {"InternalError", 500, Code::kUnavailable, ""},
    {"AccountBeingCreated", 409, Code::kUnavailable, "the storage account is still being set up"},
    {"ContainerBeingDeleted", 409, Code::kUnavailable, "the container is being deleted"},
    {"BlobBeingRehydrated", 409, Code::kUnsupported, kArchived},
    {"BlobArchived", 409, Code::kUnsupported, kArchived},
    {"PendingCopyOperation", 409, Code::kUnavailable, kBusyCopy},
    {"CopyAcrossAccountsNotSupported", 409, Code::kUnsupported, ""},
    {"ConditionNotMet", 412, Code::kChanged, kExists},
    {"TargetConditionNotMet", 412, Code::kChanged, kExists},
    {"SourceConditionNotMet", 412, Code::kChanged, kExists},
    {"BlobAlreadyExists", 409, Code::kChanged, kExists},
    {"ContainerAlreadyExists", 409, Code::kChanged, "the container exists already"},
    {"InvalidRange", 416, Code::kCorrupt, "the range starts past the end of the object"},
    {"Md5Mismatch", 400, Code::kUnavailable, kDamaged},
    {"Crc64Mismatch", 400, Code::kUnavailable, kDamaged},
    {"InvalidMd5", 400, Code::kInvalidArgument, ""},
    {"InvalidBlockList", 400, Code::kInvalidArgument,
     "a part is missing: not sent, older than a week, or discarded by another upload to the same "
     "key"},
    {"InvalidBlockId", 400, Code::kInvalidArgument, ""},
    {"InvalidBlobOrBlock", 400, Code::kInvalidArgument,
     "the key has unfinished blocks of another program, whose ids have another length; commit or "
     "delete the blob first"},
    {"BlockCountExceedsLimit", 409, Code::kInvalidArgument,
     "the blob has 100,000 uncommitted blocks; commit or delete it first"},
    {"BlockListTooLong", 400, Code::kInvalidArgument, "an object has at most 50,000 blocks"},
    {"InvalidBlobType", 409, Code::kInvalidArgument,
     "the blob is no block blob (a page or append blob)"},
    {"SnapshotsPresent", 409, Code::kInvalidArgument, "the blob has snapshots; delete them first"},
    {"LeaseIdMissing", 412, Code::kChanged, kLeased},
    {"LeaseAlreadyPresent", 409, Code::kChanged, kLeased},
    {"BlobImmutableDueToPolicy", 409, Code::kDenied, "an immutability policy keeps the blob"},
    {"CannotVerifyCopySource", 403, Code::kDenied,
     "the service may not read the object that is to be copied"},
    {"RequestBodyTooLarge", 413, Code::kInvalidArgument,
     "larger than the service allows in one request"},
    {"InvalidResourceName", 400, Code::kInvalidArgument,
     "the container's name or the key is not allowed"},
    {"InvalidUri", 400, Code::kInvalidArgument, "the key is not allowed"},
    {"InvalidInput", 400, Code::kInvalidArgument, ""},
    {"InvalidHeaderValue", 400, Code::kInvalidArgument, ""},
    {"InvalidQueryParameterValue", 400, Code::kInvalidArgument, ""},
    {"OutOfRangeInput", 400, Code::kInvalidArgument, ""},
    {"InvalidXmlDocument", 400, Code::kInvalidArgument, ""},
    {"UnsupportedHttpVerb", 405, Code::kUnsupported, "the service does not offer this operation"},
    {"FeatureNotSupported", 500, Code::kUnsupported, ""},  // Azurite
    {"FeatureVersionMismatch", 409, Code::kUnsupported, ""},
    {"FeatureNotYetSupportedForHierarchicalNamespaceAccounts", 409, Code::kUnsupported,
     "accounts with a hierarchical namespace do not offer this operation"},
    {"BlobTypeNotSupported", 400, Code::kUnsupported, ""},
    {"", 304, Code::kChanged, "unexpected answer to a request without If-None-Match"},
    {"", 400, Code::kInvalidArgument, ""},
    {"", 401, Code::kDenied, "the credentials were refused"},
    {"", 403, Code::kDenied, "access denied; check the credentials and the account's rules"},
    {"", 404, Code::kNotFound, "no such object or container"},
    {"", 405, Code::kUnsupported, "the service does not offer this operation here"},
    {"", 408, Code::kUnavailable, "the service waited too long for the request"},
    {"", 409, Code::kUnavailable, kBusyCopy},
    {"", 412, Code::kChanged, kExists},
    {"", 413, Code::kInvalidArgument, "larger than the service allows in one request"},
    {"", 416, Code::kCorrupt, "the range starts past the end of the object"},
    {"", 429, Code::kThrottled, kSlowDown},
    {"", 500, Code::kUnavailable, ""},
    {"", 501, Code::kUnsupported, "the service does not offer this operation"},
    {"", 502, Code::kUnavailable, ""},
    {"", 503, Code::kThrottled, kSlowDown},
    {"", 504, Code::kUnavailable, ""},
};

ErrorRow row_for(std::string_view azure_code, int status) noexcept {
  if (const auto row = vendor::find_error(kTable, azure_code, status)) return *row;
  // 2xx: only an answer of the wrong kind comes here.
  return {"", status, Code::kCorrupt,
          "not an answer to this request; check that the endpoint is a Blob service"};
}

}  // namespace

std::span<const ErrorRow> error_table() noexcept { return kTable; }

std::string error_code_of(const http::ResponseHead& head, std::string_view body) {
  const std::string_view field = head.header("x-ms-error-code");
  if (!field.empty()) return std::string(field);
  return parse_error_body(body).code;
}

bool is_token_refused(std::string_view azure_code, int http_status) noexcept {
  return http_status == 401 || azure_code == "InvalidAuthenticationInfo" ||
         azure_code == "AuthenticationFailed";
}

Code code_for(std::string_view azure_code, int http_status) noexcept {
  return row_for(azure_code, http_status).code;
}

Status error_status(std::string_view what, const http::ResponseHead& head, std::string_view body,
                    std::string_view credentials_source) {
  const ErrorBody error = parse_error_body(body);
  const std::string code = error_code_of(head, body);
  const ErrorRow row = row_for(code, head.status);
  std::string message(what);
  message += ": ";
  if (!code.empty()) message += printable(code, 64) + ", ";
  message += row.advice;
  if (row.advice.empty()) {
    // Only the first line of the server's own words: the others are request id and time.
    std::string_view text = error.message;
    if (text.empty() && code.empty()) text = body;
    text = text.substr(0, text.find_first_of("\r\n"));
    message +=
        text.empty() ? "no explanation" : "the service says \"" + printable(text, 200) + "\"";
  }
  if (row.code == Code::kDenied) {
    const std::string_view date = head.header("date");
    if (row.advice == kWrongKey && !date.empty())
      message += "; the service's clock says " + printable(date, 40);
    if (!credentials_source.empty()) message += "; credentials: " + std::string(credentials_source);
  }
  message += " (HTTP " + std::to_string(head.status);
  const std::string_view id = head.header("x-ms-request-id");
  if (!id.empty()) message += ", request id " + printable(id, 64);
  message += ")";
  return Status(row.code, std::move(message));
}

}  // namespace headrace::azure
