#pragma once
/// \file
/// Errors that XML interfaces like S3's have in common (S3's and Google's). A vendor's table is its
/// own rows and then these.
#include <algorithm>
#include <array>

#include "store/vendor/error_table.h"

namespace headrace::vendor {

inline constexpr std::string_view kSlowDown = "the store asks for a lower request rate";

/// Sources: those of s3_errors.cc and gcs_errors.cc, which say the same of these.
inline constexpr ErrorRow kSharedXmlErrors[] = {
    {"NoSuchKey", 404, Code::kNotFound, "no such object"},
    {"NoSuchUpload", 404, Code::kNotFound,
     "the multipart upload is gone: completed, aborted or expired"},
    {"RequestTimeTooSkewed", 403, Code::kDenied,
     "this machine's clock is wrong; set it (timedatectl, chrony, ntpd)"},
    {"TooManyRequests", 429, Code::kThrottled, kSlowDown},
    {"BandwidthLimitExceeded", 509, Code::kThrottled, kSlowDown},
    {"InternalError", 500, Code::kUnavailable, ""},
    {"OperationAborted", 409, Code::kUnavailable, "another operation on the object is in progress"},
    {"ConditionalRequestConflict", 409, Code::kUnavailable,
     "another operation on the object is in progress"},
    {"TemporaryRedirect", 307, Code::kUnavailable, "the bucket is still being set up"},
    {"IncompleteBody", 400, Code::kUnavailable, "bytes were lost on the way to the store"},
    {"BadDigest", 400, Code::kUnavailable, "bytes were damaged on the way to the store"},
    {"PreconditionFailed", 412, Code::kChanged,
     "the object exists already, or is not the version that was expected"},
    {"NotModified", 304, Code::kChanged, "unexpected answer to a request without If-None-Match"},
    {"InvalidRange", 416, Code::kCorrupt, "the range starts past the end of the object"},
    {"InvalidBucketName", 400, Code::kInvalidArgument, ""},
    {"InvalidArgument", 400, Code::kInvalidArgument, ""},
    {"InvalidPart", 400, Code::kInvalidArgument, "a part is missing or has another ETag"},
    {"InvalidPartOrder", 400, Code::kInvalidArgument, "parts must be in ascending order"},
    {"EntityTooLarge", 400, Code::kInvalidArgument, "larger than the store allows in one request"},
    {"EntityTooSmall", 400, Code::kInvalidArgument,
     "all parts but the last must have at least 5 MiB"},
    {"MalformedXML", 400, Code::kInvalidArgument, ""},
    {"MissingContentLength", 411, Code::kInvalidArgument, ""},
    {"MethodNotAllowed", 405, Code::kUnsupported, "the store does not offer this operation here"},
    {"NotImplemented", 501, Code::kUnsupported, "the store does not offer this operation"},
    {"", 304, Code::kChanged, "unexpected answer to a request without If-None-Match"},
    {"", 400, Code::kInvalidArgument, ""},
    {"", 404, Code::kNotFound, "no such object or bucket"},
    {"", 405, Code::kUnsupported, "the store does not offer this operation here"},
    {"", 408, Code::kUnavailable, "the store waited too long for the request"},
    {"", 409, Code::kUnavailable, "another operation on the object is in progress"},
    {"", 412, Code::kChanged, "the object exists already, or is not the version that was expected"},
    {"", 416, Code::kCorrupt, "the range starts past the end of the object"},
    {"", 429, Code::kThrottled, kSlowDown},
    {"", 500, Code::kUnavailable, ""},
    {"", 501, Code::kUnsupported, "the store does not offer this operation"},
    {"", 502, Code::kUnavailable, ""},
    {"", 504, Code::kUnavailable, ""},
};

/// One table of two; the first is asked first.
template <std::size_t kOwn, std::size_t kShared>
constexpr std::array<ErrorRow, kOwn + kShared> joined(const ErrorRow (&own)[kOwn],
                                                      const ErrorRow (&shared)[kShared]) {
  std::array<ErrorRow, kOwn + kShared> all;
  std::copy(own, own + kOwn, all.begin());
  std::copy(shared, shared + kShared, all.begin() + kOwn);
  return all;
}

}  // namespace headrace::vendor
