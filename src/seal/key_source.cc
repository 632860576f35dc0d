// Texts with keys are wiped here before their memory goes back. What a program wrote has gone
// through a pipe and a growing buffer before, and the environment is the process's own: those are
// out of reach.
#include <fcntl.h>
#include <openssl/crypto.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>

#include "auth/process_runner.h"
#include "base/base64.h"
#include "base/errno_status.h"
#include "base/fd.h"
#include "base/read_at.h"
#include "base/strings.h"
#include "headrace/seal_key.h"

namespace headrace {
namespace {

using KeyPtr = std::shared_ptr<const SealKey>;

constexpr std::string_view kWhatAKeyIs =
    "a key is 32 bytes, or 64 hexadecimal digits, or base64 of 32 bytes (44 characters)";
/// More than any spelling of a key takes.
constexpr std::size_t kMostBytes = 1024;
constexpr std::size_t kMostErrorBytes = 200;

/// A text that is wiped when it goes.
struct Secret {
  std::string text;
  ~Secret() { OPENSSL_cleanse(text.data(), text.size()); }
};

bool decode_hex(std::string_view text, SealKey::Bytes& out) {
  Secret decoded;
  decoded.text.reserve(out.size());
  if (text.size() != 2 * out.size() || !from_hex(text, decoded.text)) return false;
  std::memcpy(out.data(), decoded.text.data(), out.size());
  return true;
}

/// Half a key, which has as many digits as a key has bytes.
bool is_hex(std::string_view text) noexcept {
  return std::all_of(text.begin(), text.end(), [](char c) { return hex_value(c) >= 0; });
}

/// `is_raw`: 32 bytes may be the key itself.
Result<KeyPtr> parse_key(const std::string& source, std::string_view content, bool is_raw) {
  SealKey::Bytes bytes;
  const std::string_view text = trim(content, kWhiteSpace);
  bool is_key = true;
  if (is_raw && content.size() == bytes.size() && !is_hex(content)) {
    std::memcpy(bytes.data(), content.data(), bytes.size());
  } else {
    is_key = decode_hex(text, bytes) || decode_base64(text, bytes);
  }
  auto key = is_key ? std::make_shared<const SealKey>(bytes) : nullptr;
  OPENSSL_cleanse(bytes.data(), bytes.size());
  if (key != nullptr) return key;
  return Status(Code::kInvalidArgument, "key " + source + ": " + std::to_string(content.size()) +
                                            " bytes that are no key; " + std::string(kWhatAKeyIs));
}

Result<KeyPtr> read_file(const std::string& source, const std::string& path) {
  const Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file) return errno_status(errno, "key " + source);
  struct stat info {};
  if (::fstat(file.get(), &info) != 0) return errno_status(errno, "key " + source);
  if (!S_ISREG(info.st_mode))
    return Status(Code::kInvalidArgument, "key " + source + ": not a file");
  if ((info.st_mode & (S_IRWXO | S_IWGRP)) != 0)
    return Status(Code::kDenied, "key " + source +
                                     ": others may read or change it; `chmod 600` it (its group "
                                     "may read it: 640)");
  Secret content{std::string(kMostBytes, '\0')};
  const std::int64_t count =
      read_at(file.get(), 0, std::as_writable_bytes(std::span(content.text)));
  if (count < 0) return errno_status(static_cast<int>(-count), "key " + source);
  return parse_key(source,
                   std::string_view(content.text).substr(0, static_cast<std::size_t>(count)), true);
}

Result<KeyPtr> read_variable(const std::string& source, const std::string& name,
                             const Environment& environment) {
  const auto found = environment.variables.find(name);
  if (found == environment.variables.end())
    return Status(Code::kInvalidArgument, "key " + source + ": there is no such variable");
  return parse_key(source, found->second, false);
}

Result<KeyPtr> run_command(const std::string& source, const std::string& command,
                           const Environment& environment, std::stop_token stop) {
  auto words = auth::split_command(command);
  if (!words) return std::move(words).error().annotate("key " + source);
  auto answer = auth::local_process_runner(environment)->run(*words, {}, std::move(stop));
  if (!answer) return std::move(answer).error().annotate("key " + source);
  const Secret output{std::move((*answer).output)};
  if ((*answer).exit_code != 0) {
    const std::string_view said = trim((*answer).errors, kWhiteSpace);
    return Status(Code::kDenied, "key " + source + ": the program ended with code " +
                                     std::to_string((*answer).exit_code) +
                                     (said.empty() ? "" : ": ") +
                                     std::string(said.substr(0, kMostErrorBytes)));
  }
  return parse_key(source, output.text, true);
}

}  // namespace

Result<KeyPtr> SealKey::read(const std::string& source, const Environment& environment,
                             std::stop_token stop) {
  const std::size_t colon = source.find(':');
  const std::string kind = source.substr(0, colon);
  const std::string rest = colon == std::string::npos ? "" : source.substr(colon + 1);
  if (!rest.empty() && kind == "file") return read_file(source, rest);
  if (!rest.empty() && kind == "env") return read_variable(source, rest, environment);
  if (!rest.empty() && kind == "command")
    return run_command(source, rest, environment, std::move(stop));
  // Not shown: it may be the key itself.
  return Status(
      Code::kInvalidArgument,
      "a key is named by file:PATH, env:NAME or command:PROGRAM ARGUMENTS; this is none of "
      "them, and is not shown, as it may be the key");
}

}  // namespace headrace
