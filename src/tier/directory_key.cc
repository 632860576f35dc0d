// A directory is new when there is nothing in it that readers or writers of extents leave: neither
// a ledger nor a bucket. The file is complete before it has its name, so one that is not whole was
// damaged.
#include "tier/directory_key.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <optional>
#include <span>
#include <string_view>

#include "base/errno_status.h"
#include "base/fd.h"
#include "base/read_at.h"
#include "base/write_at.h"
#include "tier/extent_name.h"
#include "tier/folder.h"

namespace headrace::tier {
namespace {

constexpr const char* kFile = "key-id";
constexpr std::string_view kBefore = "AES-256-GCM 1 ";
constexpr std::size_t kIdDigits = 2 * SealKey::kIdBytes;

/// Nullopt: there is none.
Result<std::optional<std::string>> read_id(int root) {
  const Fd file(::openat(root, kFile, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (!file && errno == ENOENT) return std::optional<std::string>();
  if (!file) return errno_status(errno, "reading which key it is encrypted under");
  std::array<char, kBefore.size() + kIdDigits + 2> content{};
  const std::int64_t count = read_at(file.get(), 0, std::as_writable_bytes(std::span(content)));
  if (count < 0)
    return errno_status(static_cast<int>(-count), "reading which key it is encrypted under");
  const std::string_view text(content.data(), static_cast<std::size_t>(count));
  if (text.size() != kBefore.size() + kIdDigits + 1 || !text.starts_with(kBefore) ||
      text.back() != '\n')
    return Status(Code::kCorrupt,
                  "v1/key-id, which says its key, is damaged; delete the directory");
  return std::optional(std::string(text.substr(kBefore.size(), kIdDigits)));
}

Status write_id(int root, const std::string& id) {
  const std::string temporary = unfinished_name();
  const std::string text = std::string(kBefore) + id + "\n";
  const Fd file(::openat(root, temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!file) return errno_status(errno, "making v1/key-id");
  int error = ::fchmod(file.get(), file_mode(access_of(root))) == 0 ? 0 : errno;
  if (error == 0) error = write_all_at(file.get(), 0, std::as_bytes(std::span(text)));
  if (error == 0 && ::renameat(root, temporary.c_str(), root, kFile) != 0) error = errno;
  if (error == 0) return {};
  ::unlinkat(root, temporary.c_str(), 0);
  return errno_status(error, "making v1/key-id");
}

Result<bool> is_new(int root) {
  bool is_used = false;
  HEADRACE_TRY(visit_names(root, [&](std::string_view name) {
    is_used = is_used || parse_bucket_name(name) || name == "ledger";
  }));
  return !is_used;
}

}  // namespace

Result<std::string> agree_on_key(int root, const SealKey* key) {
  HEADRACE_TRY_ASSIGN(const std::optional<std::string> known, read_id(root));
  if (known) {
    if (key == nullptr || key->id() == *known) return *known;
    return Status(Code::kDenied, "is encrypted under the key " + *known + "; the key given is " +
                                     key->id() + ". Give the other, or another directory");
  }
  if (key == nullptr) return std::string();
  HEADRACE_TRY_ASSIGN(const bool is_fresh, is_new(root));
  if (!is_fresh)
    return Status(Code::kInvalidArgument,
                  "was made without a key, and is not encrypted. Give another directory, or delete "
                  "this one");
  HEADRACE_TRY(write_id(root, key->id()));
  return key->id();
}

}  // namespace headrace::tier
