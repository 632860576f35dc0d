// A token is base64 of: version 0x80, time (8 bytes), IV (16), AES-128-CBC text, HMAC-SHA-256 (32)
// of all before it. The key has 32 bytes: 16 to sign, 16 to encrypt (github.com/fernet/spec).
//
// The HMAC is compared first, in constant time, and nothing is decrypted that it does not confirm;
// a wrong password ends there as well. The time is not looked at: data has no age at which it
// becomes invalid. Everything happens in the caller's memory, which must have room for the decoded
// token; the text is moved to its front at the end.
#include "shard/formats/litdata/fernet.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <cstring>
#include <limits>
#include <memory>
#include <vector>

namespace headrace::detail {
namespace {

constexpr int kRounds = 480'000;  // litdata/utilities/encryption.py
constexpr std::size_t kIvOffset = 9, kIvBytes = 16, kMacBytes = 32, kBlockBytes = 16;
constexpr std::size_t kHeadBytes = kIvOffset + kIvBytes;
constexpr unsigned char kVersion = 0x80;
// EVP takes an int.
constexpr std::size_t kMostBytes = std::numeric_limits<int>::max();

constexpr std::array<std::uint8_t, 256> make_values() {
  std::array<std::uint8_t, 256> values{};
  values.fill(0xff);
  constexpr std::string_view kLetters =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
  for (std::size_t i = 0; i < kLetters.size(); ++i)
    values[static_cast<unsigned char>(kLetters[i])] = static_cast<std::uint8_t>(i);
  values['+'] = values['-'] = 62;
  values['/'] = values['_'] = 63;
  return values;
}
constexpr std::array<std::uint8_t, 256> kValues = make_values();

unsigned char* chars(std::byte* p) { return reinterpret_cast<unsigned char*>(p); }

struct FreeContext {
  void operator()(EVP_CIPHER_CTX* context) const { EVP_CIPHER_CTX_free(context); }
};

}  // namespace

std::optional<std::size_t> decode_base64(std::span<const std::byte> text,
                                         std::span<std::byte> out) noexcept {
  if (text.size() % 4 != 0 || out.size() < text.size() / 4 * 3) return std::nullopt;
  std::size_t padding = 0;
  while (padding < 2 && padding < text.size() &&
         text[text.size() - 1 - padding] == std::byte{'='}) {
    ++padding;
  }
  std::size_t written = 0;
  for (std::size_t i = 0; i < text.size(); i += 4) {
    std::uint32_t word = 0;
    const std::size_t letters = i + 4 == text.size() ? 4 - padding : 4;
    for (std::size_t j = 0; j < letters; ++j) {
      const std::uint32_t value = kValues[std::to_integer<std::uint8_t>(text[i + j])];
      if (value == 0xff) return std::nullopt;
      word |= value << (18 - 6 * j);
    }
    for (std::size_t j = 0; j + 1 < letters; ++j)
      out[written++] = static_cast<std::byte>(word >> (16 - 8 * j) & 0xff);
  }
  return written;
}

FernetKey::~FernetKey() { OPENSSL_cleanse(key_.data(), key_.size()); }

Result<FernetKey> FernetKey::derive(std::string_view password, std::string_view salt_base64) {
  std::vector<std::byte> salt(salt_base64.size());
  const auto size = decode_base64(std::as_bytes(std::span(salt_base64)), salt);
  if (!size || *size == 0) {
    return Status(Code::kInvalidArgument,
                  "password_salt: must be the salt of litdata's key file, in base64");
  }
  FernetKey key;
  if (password.size() > kMostBytes ||
      PKCS5_PBKDF2_HMAC(password.data(), static_cast<int>(password.size()), chars(salt.data()),
                        static_cast<int>(*size), kRounds, EVP_sha256(),
                        static_cast<int>(key.key_.size()), key.key_.data()) != 1) {
    return Status(Code::kInternal, "OpenSSL cannot derive a key with PBKDF2");
  }
  return key;
}

std::optional<std::size_t> FernetKey::decrypt(std::span<const std::byte> token,
                                              std::span<std::byte> out) const {
  const auto decoded = decode_base64(token, out);
  if (!decoded || *decoded < kHeadBytes + kBlockBytes + kMacBytes || *decoded > kMostBytes)
    return std::nullopt;
  const std::size_t signed_bytes = *decoded - kMacBytes;
  unsigned char mac[EVP_MAX_MD_SIZE];
  unsigned int mac_bytes = 0;
  if (HMAC(EVP_sha256(), key_.data(), 16, chars(out.data()), signed_bytes, mac, &mac_bytes) ==
          nullptr ||
      mac_bytes != kMacBytes || CRYPTO_memcmp(mac, out.data() + signed_bytes, kMacBytes) != 0 ||
      *chars(out.data()) != kVersion) {
    return std::nullopt;
  }
  const std::unique_ptr<EVP_CIPHER_CTX, FreeContext> context(EVP_CIPHER_CTX_new());
  unsigned char* text = chars(out.data() + kHeadBytes);
  int size = 0, rest = 0;
  // In place: OpenSSL allows it when both pointers are equal.
  if (!context ||
      EVP_DecryptInit_ex(context.get(), EVP_aes_128_cbc(), nullptr, key_.data() + 16,
                         chars(out.data() + kIvOffset)) != 1 ||
      EVP_DecryptUpdate(context.get(), text, &size, text,
                        static_cast<int>(signed_bytes - kHeadBytes)) != 1 ||
      EVP_DecryptFinal_ex(context.get(), text + size, &rest) != 1) {
    return std::nullopt;
  }
  const auto plain_bytes = static_cast<std::size_t>(size + rest);
  std::memmove(out.data(), text, plain_bytes);
  return plain_bytes;
}

}  // namespace headrace::detail
