#pragma once
/// \file
/// Documents of Google's XML API: text in, values out, and back. Pure; the text is bounded by the
/// caller.
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "headrace/status.h"
#include "headrace/store.h"
#include "store/vendor/xml_api.h"

namespace headrace::gcs {

/// A ListBucketResult made with list-type=2 and encoding-type=url. Keys and prefixes lose
/// `root_prefix`; the key that equals it is left out. Versions are generations. Errors: kCorrupt.
Result<ListPage> parse_list(std::string_view body, std::string_view root_prefix);

/// UploadId of an InitiateMultipartUploadResult. Errors: kCorrupt.
Result<std::string> parse_upload_id(std::string_view body);

/// The body of "complete multipart upload", and of "delete multiple objects" (whole keys;
/// \pre vendor::fits_xml() of all).
std::string format_complete(std::span<const UploadedPart> parts);
std::string format_delete(std::span<const std::string> keys);

/// Failures in a DeleteResult: whole key and Google's code. Errors: kCorrupt.
struct DeleteFailure {
  std::string key, code, message;
};
Result<std::vector<DeleteFailure>> parse_delete(std::string_view body);

/// One page of ListPartsResult or ListMultipartUploadsResult; `next` continues: part-number-marker,
/// or key-marker and upload-id-marker; empty at the end. Errors: kCorrupt.
struct PartPage {
  std::vector<UploadedPart> parts;
  std::string next;
};
Result<PartPage> parse_parts(std::string_view body);
/// Keys lose `root_prefix`.
Result<vendor::UploadPage> parse_uploads(std::string_view body, std::string_view root_prefix);

}  // namespace headrace::gcs
