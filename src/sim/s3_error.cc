#include "sim/s3_error.h"

#include <array>

#include "base/check.h"

namespace headrace::sim {
namespace {

// In the order of S3Code.
constexpr std::array<S3ErrorText, static_cast<std::size_t>(S3Code::kCount)> kTexts = {{
    {"", 200, ""},
    {"AccessDenied", 403, "Access Denied"},
    {"AuthenticationRequired", 401, "Authentication required."},
    {"AuthorizationHeaderMalformed", 400, "The authorization header is malformed."},
    {"AuthorizationQueryParametersError", 400, "The authorization query parameters are malformed."},
    {"BadDigest", 400, "The checksum you specified did not match what we received."},
    {"BucketAlreadyOwnedByYou", 409, "The bucket exists and you own it."},
    {"BucketNotEmpty", 409, "The bucket you tried to delete is not empty."},
    {"EntityTooLarge", 400, "Your proposed upload exceeds the maximum allowed object size."},
    {"EntityTooSmall", 400,
     "Your proposed upload is smaller than the minimum allowed object size."},
    {"ExpiredToken", 400, "The provided token has expired."},
    {"IllegalLocationConstraintException", 400,
     "The specified location constraint is not the region of this endpoint."},
    {"IncompleteBody", 400,
     "You did not provide the number of bytes specified by the Content-Length header."},
    {"InternalError", 500, "We encountered an internal error. Please try again."},
    {"InvalidAccessKeyId", 403,
     "The AWS Access Key Id you provided does not exist in our records."},
    {"InvalidArgument", 400, "Invalid Argument"},
    {"InvalidBucketName", 400, "The specified bucket is not valid."},
    {"InvalidDigest", 400, "The Content-MD5 or checksum value you specified is not valid."},
    {"InvalidObjectState", 403, "The operation is not valid for the object's storage class"},
    {"InvalidPart", 400,
     "One or more of the specified parts could not be found, or its ETag did not match."},
    {"InvalidPartNumber", 416, "The requested partnumber is not satisfiable"},
    {"InvalidPartOrder", 400, "The list of parts was not in ascending order."},
    {"InvalidPolicyDocument", 400, "The policy of the form is not valid."},
    {"InvalidRange", 416, "The requested range is not satisfiable"},
    {"InvalidRequest", 400, "Invalid Request"},
    {"InvalidToken", 400, "The provided token is malformed or otherwise invalid."},
    {"KeyTooLongError", 400, "Your key is too long"},
    {"MalformedPOSTRequest", 400,
     "The body of your POST request is not well-formed multipart/form-data."},
    {"MalformedXML", 400, "The XML you provided was not well-formed."},
    {"MaxMessageLengthExceeded", 400, "Your request was too big."},
    {"MetadataTooLarge", 400, "Your metadata headers exceed the maximum allowed metadata size."},
    {"MethodNotAllowed", 405, "The specified method is not allowed against this resource."},
    {"MissingContentLength", 411, "You must provide the Content-Length HTTP header."},
    {"NoSuchBucket", 404, "The specified bucket does not exist"},
    {"NoSuchKey", 404, "The specified key does not exist."},
    {"NoSuchUpload", 404, "The specified upload does not exist."},
    {"NotImplemented", 501, "A header or parameter you provided is not implemented."},
    {"PreconditionFailed", 412, "At least one of the preconditions you specified did not hold"},
    {"RequestTimeTooSkewed", 403,
     "The difference between the request time and the current time is too large."},
    {"RequestTimeout", 400,
     "Your socket connection to the server was not read from or written to within the timeout "
     "period."},
    {"SignatureDoesNotMatch", 403,
     "The request signature we calculated does not match the signature you provided."},
    {"SlowDown", 503, "Please reduce your request rate."},
    {"TooManyRequests", 429, "Too many requests. Please reduce your request rate."},
    {"XAmzContentSHA256Mismatch", 400,
     "The provided 'x-amz-content-sha256' header does not match what was computed."},
}};

}  // namespace

const S3ErrorText& error_text(S3Code code) noexcept {
  HEADRACE_DCHECK(code != S3Code::kNone && code < S3Code::kCount);
  return kTexts[static_cast<std::size_t>(code)];
}

void append_xml_escaped(std::string_view text, std::string& out) {
  for (char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\'':
        out += "&apos;";
        break;
      case '\t':
      case '\n':
      case '\r':
        // As character references: parsers normalise the literal ones.
        out += "&#" + std::to_string(static_cast<int>(c)) + ";";
        break;
      default:
        out += static_cast<unsigned char>(c) < 0x20 ? '?' : c;
    }
  }
}

void append_xml_element(std::string_view name, std::string_view text, std::string& out) {
  out += '<';
  out += name;
  out += '>';
  append_xml_escaped(text, out);
  out += "</";
  out += name;
  out += '>';
}

std::string error_document(S3Code code, std::string_view resource, std::string_view request_id,
                           std::string_view detail) {
  const S3ErrorText& text = error_text(code);
  std::string out = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Error>";
  append_xml_element("Code", text.name, out);
  append_xml_element("Message", detail.empty() ? text.message : detail, out);
  append_xml_element("Resource", resource, out);
  append_xml_element("RequestId", request_id, out);
  out += "</Error>";
  return out;
}

std::string_view reason_phrase(int status) noexcept {
  switch (status) {
    case 200:
      return "OK";
    case 201:
      return "Created";
    case 204:
      return "No Content";
    case 206:
      return "Partial Content";
    case 303:
      return "See Other";
    case 307:
      return "Temporary Redirect";
    case 304:
      return "Not Modified";
    case 400:
      return "Bad Request";
    case 401:
      return "Unauthorized";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 409:
      return "Conflict";
    case 411:
      return "Length Required";
    case 412:
      return "Precondition Failed";
    case 416:
      return "Requested Range Not Satisfiable";
    case 429:
      return "Too Many Requests";
    case 500:
      return "Internal Server Error";
    case 501:
      return "Not Implemented";
    case 503:
      return "Slow Down";
    default:
      return "Unknown";
  }
}

}  // namespace headrace::sim
