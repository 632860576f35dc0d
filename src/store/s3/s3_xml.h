#pragma once
/// \file
/// S3's XML answers: text in, values out. Pure; the text is bounded by the caller.
#include <span>
#include <string>
#include <string_view>

#include "headrace/status.h"
#include "headrace/store.h"

namespace headrace::s3 {

/// The parts of an <Error> that messages use. All empty when the body is not one.
struct ErrorBody {
  std::string code;
  std::string message;
  std::string region;
  std::string endpoint;
  std::string request_id;
};

/// Reads an <Error> document; also one that is cut off, as far as it goes.
ErrorBody parse_error_body(std::string_view body);

/// True for a document whose root is <Error>: some calls send it with status 200.
bool is_error_body(std::string_view body);

/// Reads a ListBucketResult made with encoding-type=url. Keys and prefixes lose `root_prefix`; the
/// key that equals it is left out. Errors: kCorrupt.
Result<ListPage> parse_list(std::string_view body, std::string_view root_prefix);

/// UploadId of an InitiateMultipartUploadResult. Errors: kCorrupt.
Result<std::string> parse_upload_id(std::string_view body);

/// ETag of a CompleteMultipartUploadResult or CopyObjectResult, quotes included; empty when there
/// is none. Errors: kCorrupt.
Result<std::string> parse_result_etag(std::string_view body);

/// The body of CompleteMultipartUpload.
std::string format_complete(std::span<const UploadedPart> parts);

/// ETags always have quotes here; some servers leave them out in XML.
std::string with_quotes(std::string_view etag);

}  // namespace headrace::s3
