#pragma once
/// \file
/// From keys to paths and from stat to versions. Pure.
#include <sys/stat.h>

#include <cstdint>
#include <string>
#include <string_view>

#include "headrace/status.h"
#include "headrace/store.h"

namespace headrace::file {

/// Names that are no objects.
constexpr std::string_view kHiddenPrefix = ".headrace-";
constexpr std::string_view kUploadPrefix = ".headrace-upload-";

/// Errors: kInvalidArgument for keys that would leave the root or have no path of their own.
Status check_key(std::string_view key);
/// "<mtime ns>-<size>-<inode>" in quotes.
std::string etag_of(const struct stat& info);
ObjectInfo info_of(std::string key, const struct stat& info);
/// The path behind "file:///path" or a plain path, without slashes at the end ("/" stays). Percent
/// signs mean themselves. Errors: kInvalidArgument (empty, or a file URL with a host).
Result<std::string> root_of(const std::string& url);
/// The same, absolute: a relative path is below the process's directory of now, and stays there
/// when the process changes its directory. Errors also: those of getcwd(3).
Result<std::string> lasting_root_of(const std::string& url);

}  // namespace headrace::file
