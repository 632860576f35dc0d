#pragma once
/// \file
/// Fernet tokens, which LitData encrypts samples and chunks with: base64 of version, time, IV,
/// AES-128-CBC ciphertext and HMAC-SHA256. Source: the Fernet specification; key derivation as
/// litdata/utilities/encryption.py.
///
/// Threads: a FernetKey is immutable. It is wiped when it goes, and never printed.
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "headrace/status.h"

namespace headrace::detail {

class FernetKey {
 public:
  /// PBKDF2-HMAC-SHA256 of 480,000 rounds: a few tenths of a second of CPU. `salt_base64`: urlsafe
  /// base64 as litdata writes it into its key file. Errors: kInvalidArgument (bad salt).
  static Result<FernetKey> derive(std::string_view password, std::string_view salt_base64);
  FernetKey(const FernetKey&) = default;
  FernetKey& operator=(const FernetKey&) = default;
  ~FernetKey();

  /// Decrypts a token to the front of `out`, which must not overlap it; returns the size of the
  /// plain text. \pre out.size() >= token.size(): the rest of it is used as scratch. Nothing: not a
  /// token of this key.
  std::optional<std::size_t> decrypt(std::span<const std::byte> token,
                                     std::span<std::byte> out) const;

 private:
  FernetKey() = default;
  std::array<unsigned char, 32> key_{};  // Signing key, then encryption key.
};

/// Decodes urlsafe or plain base64 with its padding. Writes at most text.size() / 4 * 3 bytes;
/// nothing when the text is malformed.
std::optional<std::size_t> decode_base64(std::span<const std::byte> text,
                                         std::span<std::byte> out) noexcept;

}  // namespace headrace::detail
