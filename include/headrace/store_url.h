#pragma once
/// \file
/// What a person has written where the URL of a store or a directory is expected.
#include <string_view>

#include "headrace/status.h"

namespace headrace {

/// What open_store() asks first: kInvalidArgument for a URL with a slip of the pen ("s3:/bucket",
/// "s3//bucket", " s3://bucket"), which as a path would name a directory here. Who takes a path and
/// makes it absolute asks before. Looks at the working directory.
Status check_store_url(std::string_view text);

}  // namespace headrace
