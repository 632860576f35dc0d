#pragma once
/// \file
/// The errors that S3 answers with: code, HTTP status, message, XML document. Pure.
/// Source of names and statuses: "Error responses" of the Amazon S3 API reference.
#include <cstdint>
#include <string>
#include <string_view>

namespace headrace::sim {

enum class S3Code : std::uint8_t {
  kNone = 0,  ///< No error.
  kAccessDenied,
  kAuthenticationRequired,  ///< Google's, for tokens.
  kAuthorizationHeaderMalformed,
  kAuthorizationQueryParametersError,
  kBadDigest,
  kBucketAlreadyOwnedByYou,
  kBucketNotEmpty,
  kEntityTooLarge,
  kEntityTooSmall,
  kExpiredToken,
  kIllegalLocationConstraint,
  kIncompleteBody,
  kInternalError,
  kInvalidAccessKeyId,
  kInvalidArgument,
  kInvalidBucketName,
  kInvalidDigest,
  kInvalidObjectState,
  kInvalidPart,
  kInvalidPartNumber,
  kInvalidPartOrder,
  kInvalidPolicyDocument,
  kInvalidRange,
  kInvalidRequest,
  kInvalidToken,
  kKeyTooLong,
  kMalformedPost,
  kMalformedXml,
  kMaxMessageLengthExceeded,
  kMetadataTooLarge,
  kMethodNotAllowed,
  kMissingContentLength,
  kNoSuchBucket,
  kNoSuchKey,
  kNoSuchUpload,
  kNotImplemented,
  kPreconditionFailed,
  kRequestTimeTooSkewed,
  kRequestTimeout,
  kSignatureDoesNotMatch,
  kSlowDown,
  kTooManyRequests,
  kContentSha256Mismatch,
  kCount,
};

struct S3ErrorText {
  std::string_view name;  ///< As in <Code>.
  int status;
  std::string_view message;
};

/// \pre code != kNone and code != kCount.
const S3ErrorText& error_text(S3Code code) noexcept;

/// Appends `text` with the five XML entities escaped; control characters that XML 1.0 forbids
/// become '?'.
void append_xml_escaped(std::string_view text, std::string& out);

/// Appends `<name>text</name>` with the text escaped.
void append_xml_element(std::string_view name, std::string_view text, std::string& out);

/// The error document. `resource` is the path of the request; `detail`, when not empty, replaces
/// the standard message.
std::string error_document(S3Code code, std::string_view resource, std::string_view request_id,
                           std::string_view detail = {});

/// The reason phrase of a status line for the statuses that the simulator sends.
std::string_view reason_phrase(int status) noexcept;

}  // namespace headrace::sim
