#pragma once
/// \file
/// What a request may ask for, by operation: a list of what the simulator knows. Pure.
///
/// A parameter, x-amz-* or x-goog-* field or condition that is not in it means something that is
/// not done here. Serving the plain operation instead would be silently wrong: a DELETE with a
/// condition would delete, a PUT of a part of an object would replace it.
#include <string>

#include "http/request.h"
#include "sim/s3_error.h"
#include "sim/target.h"

namespace headrace::sim {

/// The account that owns everything, for ExpectedBucketOwner and in listings.
constexpr std::string_view kOwnerId = "000000000000";
constexpr std::string_view kOwnerElement =
    "<ID>000000000000</ID><DisplayName>headrace</DisplayName>";

/// Errors: kNotImplemented (`detail` names what), kAccessDenied (an expected owner who is not the
/// owner), kInvalidArgument (a payload hash that is none), kInvalidRequest (two checksums).
S3Code check_allowed(const http::RequestHead& head, const Target& target, std::string& detail);

}  // namespace headrace::sim
