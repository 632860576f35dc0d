#pragma once
/// \file
/// Which checksum a multipart upload began with, and what S3 asks of its parts and its completion
/// because of it. Pure.
///
/// Functions that refuse set `detail` to S3's message.
#include <cstdint>
#include <string>
#include <string_view>

#include "http/request.h"
#include "sim/s3_error.h"

namespace headrace::sim {

struct UploadSums {
  std::string field;         ///< "x-amz-checksum-crc32c"; empty: no algorithm was named.
  bool is_composite = true;  ///< Of the object: one of the parts' sums, else of all bytes.
};

/// What the request that begins an upload says. Errors: kInvalidRequest.
S3Code read_upload_sums(const http::RequestHead& head, UploadSums& out, std::string& detail);

/// As kept with the upload; the default for anything malformed.
std::string to_text(const UploadSums& sums);
UploadSums upload_sums_from_text(std::string_view text);

/// A part that came with the sum `field` (empty: none). Errors: kInvalidRequest.
S3Code check_part_sum(const UploadSums& sums, std::string_view field, std::string& detail);

/// A completion that lists this part with or without a sum. Errors: kInvalidRequest.
S3Code check_listed_sum(const UploadSums& sums, std::uint32_t part_number, bool has_sum,
                        std::string& detail);

/// A completion whose x-amz-checksum-type is `type` (may be empty). Errors: kInvalidRequest.
S3Code check_completed_type(const UploadSums& sums, std::string_view type, std::string& detail);

}  // namespace headrace::sim
