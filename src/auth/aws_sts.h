#pragma once
/// \file
/// STS: requests, answers, errors. Private to src/auth/.
#include <string>
#include <string_view>
#include <vector>

#include "auth/aws_plan.h"
#include "auth/web_client.h"

namespace headrace::auth::detail {

/// Form of an STS call; "Version" is added.
using StsForm = std::vector<std::pair<std::string, std::string>>;

/// POST to the STS of services.region, signed when `keys` is given. Errors: kInternal,
/// kInvalidArgument (endpoint).
Result<WebRequest> sts_request(const StsForm& form, const AwsServices& services,
                               const Credentials* keys, WallTime now);

/// Credentials out of the answer to either AssumeRole call. Errors: those of fetch_credentials().
Result<Credentials> parse_sts_credentials(const WebAnswer& answer);

/// The Arn of a GetCallerIdentity answer.
Result<std::string> parse_caller_identity(const WebAnswer& answer);

}  // namespace headrace::auth::detail
