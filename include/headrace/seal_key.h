#pragma once
/// \file
/// SealKey: the key under which Headrace encrypts what it keeps. docs/design/0057.
///
/// Place: src/seal/. A key never enters a message, a log or a file; its id does.
///
/// Threads: a key may be used by any number of threads.
#include <array>
#include <cstddef>
#include <memory>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>

#include "headrace/environment.h"
#include "headrace/status.h"

namespace headrace {

/// 256 bits, which are wiped when it goes.
class SealKey {
 public:
  static constexpr std::size_t kBytes = 32, kIdBytes = 8;
  using Bytes = std::array<std::byte, kBytes>;

  explicit SealKey(std::span<const std::byte, kBytes> bytes);
  ~SealKey();
  SealKey(const SealKey&) = delete;
  SealKey& operator=(const SealKey&) = delete;

  /// The key that `source` names:
  ///
  /// | source | |
  /// |---|---|
  /// | `file:PATH` | 32 bytes, or text; a file that all users may read or write, or its group may write, is refused |
  /// | `env:NAME` | text in an environment variable |
  /// | `command:PROGRAM ARGUMENTS` | what it writes to stdout within a minute: 32 bytes, or text. Words are split as a shell does; there is no shell |
  ///
  /// Text is 64 hexadecimal digits or base64 (RFC 4648, section 4) of 32 bytes; white space around
  /// it does not count. Blocks. Errors: kInvalidArgument (no such kind of source, no key in it),
  /// kDenied (others may read the file; the program fails), those of reading and of running it.
  static Result<std::shared_ptr<const SealKey>> read(const std::string& source,
                                                     const Environment& environment,
                                                     std::stop_token stop = {});

  /// The hexadecimal digits of kIdBytes that tell keys apart and say nothing of them: HKDF-SHA256
  /// of the key.
  const std::string& id() const noexcept { return id_; }

  /// A key for one use: HKDF-SHA256 (RFC 5869) with `salt`, and `purpose` as info. Whoever has it
  /// wipes it. \pre OpenSSL has SHA-256.
  Bytes derive(std::string_view purpose, std::span<const std::byte> salt) const;

 private:
  Bytes bytes_;
  std::string id_;
};

}  // namespace headrace
