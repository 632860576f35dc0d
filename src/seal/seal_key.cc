// HKDF by hand from HMAC: 32 bytes are one block of it, and OpenSSL's own allocates at every use.
#include "headrace/seal_key.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <algorithm>
#include <vector>

#include "base/check.h"
#include "base/strings.h"

namespace headrace {
namespace {

constexpr std::string_view kIdPurpose = "headrace key id";

const unsigned char* octets(std::span<const std::byte> bytes) noexcept {
  return reinterpret_cast<const unsigned char*>(bytes.data());
}

SealKey::Bytes hmac(std::span<const std::byte> key, std::span<const std::byte> text) {
  SealKey::Bytes out;
  HEADRACE_CHECK(HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()), octets(text),
                      text.size(), reinterpret_cast<unsigned char*>(out.data()),
                      nullptr) != nullptr);
  return out;
}

}  // namespace

SealKey::SealKey(std::span<const std::byte, kBytes> bytes) {
  std::copy(bytes.begin(), bytes.end(), bytes_.begin());
  Bytes derived = derive(kIdPurpose, {});
  id_ = to_hex(std::span(derived).first(kIdBytes));
  OPENSSL_cleanse(derived.data(), derived.size());
}

SealKey::~SealKey() { OPENSSL_cleanse(bytes_.data(), bytes_.size()); }

SealKey::Bytes SealKey::derive(std::string_view purpose, std::span<const std::byte> salt) const {
  // Without a salt: as many zeros as the hash has bytes (section 2.2).
  constexpr Bytes kNoSalt{};
  Bytes extracted = hmac(salt.empty() ? std::span<const std::byte>(kNoSalt) : salt, bytes_);
  const auto text = std::as_bytes(std::span(purpose));
  std::vector<std::byte> info(text.begin(), text.end());
  info.push_back(std::byte{1});
  const Bytes out = hmac(extracted, info);
  OPENSSL_cleanse(extracted.data(), extracted.size());
  return out;
}

}  // namespace headrace
