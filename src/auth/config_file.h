#pragma once
/// \file
/// The INI dialect of ~/.aws/config and ~/.aws/credentials. Pure; bounded by the size of the text.
#include <map>
#include <string>
#include <string_view>

#include "headrace/status.h"

namespace headrace::auth {

/// Section name as written ("default", "profile dev", "services local") -> key -> value. Keys are
/// in lower case; the key of an indented line is "outer.inner" ("s3.addressing_style"). A section
/// that comes twice is merged, the later key wins.
using ConfigSections = std::map<std::string, std::map<std::string, std::string>>;

/// Reads the text of such a file. `path` is for messages. Errors: kInvalidArgument, with the line
/// number, and never with the text of a line, which may be a secret.
Result<ConfigSections> parse_config(std::string_view text, const std::string& path);

}  // namespace headrace::auth
