#pragma once
/// \file
/// What a request asks for: operation, bucket, key, parameters. Pure.
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "http/request.h"
#include "http/uri.h"
#include "sim/s3_error.h"

namespace headrace::sim {

enum class Kind : std::uint8_t {
  kGetObject,
  kHeadObject,
  kPutObject,
  kCopyObject,
  kDeleteObject,
  kDeleteObjects,
  kListObjects,   ///< Both versions of the call.
  kListVersions,  ///< Each object has one version, "null".
  kListBuckets,
  kHeadBucket,
  kCreateBucket,
  kDeleteBucket,
  kGetLocation,
  kGetVersioning,
  kGetAttributes,
  kPostForm,
  kCreateUpload,
  kUploadPart,
  kCopyPart,
  kCompleteUpload,
  kAbortUpload,
  kListParts,
  kListUploads,
  kCreateSession,  ///< Of S3 Express.
  kAdmin,          ///< Below /_headrace/.
  kInvalid,        ///< Refused before the operation was known.
  kCount,
};

/// Name in the statistics: "get_object".
std::string_view kind_name(Kind kind) noexcept;

/// Name of a directory bucket of S3 Express: "name--zone--x-s3".
bool is_directory_bucket(std::string_view bucket) noexcept;

struct Target {
  Kind kind = Kind::kInvalid;
  std::string bucket;
  std::string key;  ///< Decoded. For kAdmin: the rest of the path.
  http::QueryList query;
  /// First value of that parameter; nullopt when absent.
  std::optional<std::string_view> parameter(std::string_view name) const noexcept;
};

/// Whether a directory bucket answers this list of objects or uploads: a prefix ends with the only
/// delimiter there is, "/", and no list begins behind a key.
bool is_directory_list(const Target& target) noexcept;

/// What is asked for, of what the simulator does: allowed.h says what else a request may ask.
/// Path style, and virtual-host style for hosts "bucket.localhost[:port]". Errors: kInvalidArgument
/// (escapes), kMethodNotAllowed, kNotImplemented (POSTs that the simulator does not know),
/// kInvalidBucketName, kKeyTooLong; `out` holds what was understood.
S3Code parse_target(const http::RequestHead& head, Target& out);

}  // namespace headrace::sim
