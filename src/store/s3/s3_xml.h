#pragma once
/// \file
/// S3's XML answers: text in, values out. Pure; the text is bounded by the caller.
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/buckets.h"
#include "headrace/status.h"
#include "headrace/store.h"
#include "store/vendor/xml_api.h"

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

/// Reads a ListBucketResult made with encoding-type=url. Keys and prefixes lose `root_prefix`; the
/// key that equals it is left out. Errors: kCorrupt.
Result<ListPage> parse_list(std::string_view body, std::string_view root_prefix);

/// One page of the buckets of an account. `continuation` is empty on the last one.
struct BucketPage {
  std::vector<BucketInfo> buckets;
  std::string continuation;
};
/// Reads a ListAllMyBucketsResult. Errors: kCorrupt.
Result<BucketPage> parse_buckets(std::string_view body);

/// UploadId of an InitiateMultipartUploadResult. Errors: kCorrupt.
Result<std::string> parse_upload_id(std::string_view body);

/// ETag of a CompleteMultipartUploadResult or CopyObjectResult, quotes included; empty when there
/// is none. Errors: kCorrupt.
Result<std::string> parse_result_etag(std::string_view body);

/// ETag and checksum of a CopyPartResult. Errors: kCorrupt.
Result<UploadedPart> parse_copied_part(std::string_view body, ChecksumKind kind);

/// The tags of a Tagging as a query: "name=value&...". Errors: kCorrupt.
Result<std::string> parse_tags(std::string_view body);

/// The body of CompleteMultipartUpload. Checksums of parts go with it when `kind` says which they
/// are.
std::string format_complete(std::span<const UploadedPart> parts,
                            ChecksumKind kind = ChecksumKind::kNone);

/// One page of ListParts. `next_marker` is 0 on the last one.
struct PartPage {
  std::vector<UploadedPart> parts;
  std::uint32_t next_marker = 0;
};
/// Reads a ListPartsResult; checksums of `kind`. Errors: kCorrupt.
Result<PartPage> parse_parts(std::string_view body, ChecksumKind kind);

/// Reads a ListMultipartUploadsResult made with encoding-type=url; keys lose `root_prefix`. Errors:
/// kCorrupt.
Result<vendor::UploadPage> parse_uploads(std::string_view body, std::string_view root_prefix);

/// The body of DeleteObjects, which asks for errors only. \pre vendor::fits_xml() of all.
std::string format_delete(std::span<const std::string> keys);

/// A key that DeleteObjects could not delete.
struct DeleteFailure {
  std::string key;
  ErrorBody error;
};
/// Reads a DeleteResult. Errors: kCorrupt.
Result<std::vector<DeleteFailure>> parse_delete(std::string_view body);

}  // namespace headrace::s3
