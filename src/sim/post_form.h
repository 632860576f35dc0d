#pragma once
/// \file
/// Uploads by HTML forms: the body's fields and file, the policy that allows them. Pure.
///
/// Source: "Browser-based uploads using POST" of the Amazon S3 user guide; RFC 7578.
#include <chrono>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "auth/sigv4.h"
#include "sim/s3_error.h"

namespace headrace::sim {

struct PostForm {
  std::vector<std::pair<std::string, std::string_view>> fields;  ///< Names in lower case.
  std::string_view file;
  std::string key;  ///< With ${filename} filled in.
  /// Value of the first field of that name; empty when absent.
  std::string_view field(std::string_view name) const noexcept;
};

/// Takes apart a body of multipart/form-data; the views point into it. What follows the file is not
/// read, as in S3. Errors: kMalformedPost, kInvalidArgument (no key).
S3Code parse_post_form(std::string_view content_type, std::string_view body, PostForm& out);

/// Checks signature (versions 2 and 4), expiry and conditions of the form's policy. Errors:
/// kAccessDenied (none, expired, a field that no condition allows), kInvalidAccessKeyId,
/// kSignatureDoesNotMatch, kInvalidPolicyDocument, kEntityTooSmall, kEntityTooLarge.
S3Code check_post_policy(const PostForm& form, std::string_view bucket,
                         const auth::Credentials& account, std::chrono::sys_seconds now,
                         std::string& detail);

}  // namespace headrace::sim
