#include "store/named_version.h"

#include <string>

namespace headrace {
namespace {

std::string quoted(std::string_view version_id) {
  return "\"" + std::string(version_id.substr(0, 64)) + "\"";
}

}  // namespace

Status check_named_version(const ObjectDetails* told, std::string_view version_id) {
  const std::string_view found = told == nullptr ? std::string_view() : told->version_id;
  // "null" is what S3 calls a version from before its bucket kept any.
  if (version_id.empty() || found == version_id || (version_id == "null" && found.empty()))
    return {};
  return Status(Code::kUnsupported, "the server was asked for version " + quoted(version_id) +
                                        " and answers with " +
                                        (found.empty() ? "the newest" : quoted(found)));
}

}  // namespace headrace
