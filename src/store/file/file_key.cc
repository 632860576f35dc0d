#include "store/file/file_key.h"

#include <filesystem>
#include <system_error>

#include "base/errno_status.h"

namespace headrace::file {

Status check_key(std::string_view key) {
  const auto refuse = [](const char* why) {
    return Status(Code::kInvalidArgument, std::string("the key ") + why);
  };
  if (key.empty()) return refuse("is empty");
  if (key.find('\0') != std::string_view::npos) return refuse("contains a NUL byte");
  while (true) {
    const std::size_t slash = key.find('/');
    const std::string_view component = key.substr(0, slash);
    if (component.empty())
      return refuse("has an empty path component (leading, trailing or double slash)");
    if (component == "." || component == "..")
      return refuse("has a path component \".\" or \"..\"");
    if (component.starts_with(kHiddenPrefix))
      return refuse("has a path component that starts with .headrace-");
    if (slash == std::string_view::npos) return {};
    key.remove_prefix(slash + 1);
  }
}

std::string etag_of(const struct stat& info) {
  const std::int64_t mtime_ns =
      std::int64_t{info.st_mtim.tv_sec} * 1'000'000'000 + info.st_mtim.tv_nsec;
  return "\"" + std::to_string(mtime_ns) + "-" + std::to_string(info.st_size) + "-" +
         std::to_string(info.st_ino) + "\"";
}

ObjectInfo info_of(std::string key, const struct stat& info) {
  return {.key = std::move(key),
          .size_bytes = static_cast<std::uint64_t>(info.st_size),
          .etag = etag_of(info),
          .modified_unix_s = info.st_mtim.tv_sec};
}

Result<std::string> root_of(const std::string& url) {
  constexpr std::string_view kScheme = "file://";
  std::string path = url;
  if (url.starts_with(kScheme)) {
    path = url.substr(kScheme.size());
    if (path.starts_with("localhost/")) path.erase(0, std::string_view("localhost").size());
    if (!path.starts_with('/')) {
      return Status(Code::kInvalidArgument, url + ": a file URL needs three slashes: file:///path");
    }
  }
  if (path.empty() || path.find('\0') != std::string::npos)
    return Status(Code::kInvalidArgument, "the path is empty");
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path;
}

Result<std::string> lasting_root_of(const std::string& url) {
  HEADRACE_TRY_ASSIGN(const std::string root, root_of(url));
  std::error_code error;
  const auto path = std::filesystem::absolute(root, error);
  if (error) return errno_status(error.value(), "find the directory that " + url + " is below");
  return path.string();
}

}  // namespace headrace::file
