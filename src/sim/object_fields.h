#pragma once
/// \file
/// The header fields that S3 keeps with an object (Content-Type and its like, x-amz-meta-*), held
/// in an attribute of its file. Pure but for the two functions that take a file.
///
/// Their text is header lines, each with CRLF, as an answer sends them.
#include <string>
#include <string_view>

#include "http/request.h"
#include "sim/s3_error.h"
#include "sim/storage_class.h"
#include "sim/target.h"

namespace headrace::sim {

/// Takes one field into `out` when it is of those that are kept. Errors: kMetadataTooLarge.
S3Code keep_field(std::string_view name, std::string_view value, std::string& out);

/// Those of a request. Errors: kMetadataTooLarge (2 KB of x-amz-meta-*, as S3; 3,000 bytes of all).
S3Code kept_fields(const http::RequestHead& head, std::string& out);

/// The storage class of what a request makes. \pre check_allowed() knows its name.
StorageClass wanted_class(const http::RequestHead& head);

/// Empty without any.
std::string read_fields(int fd);

/// False when the file system keeps no attributes and more than a content type would be lost.
bool write_fields(int fd, std::string_view fields);

/// `fields` with a Content-Type for certain, changed by response-content-type and its like.
std::string answered_fields(std::string_view fields, const Target& target);

/// True when the target has parameters that change the answer's fields.
bool overrides_fields(const Target& target) noexcept;

}  // namespace headrace::sim
