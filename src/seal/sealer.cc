#include "seal/sealer.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <sys/random.h>

#include <climits>

#include "base/check.h"
#include "base/endian.h"

namespace headrace::seal {
namespace {

constexpr std::size_t kNonceBytes = 12;

/// Looked up once: that costs more than a small block.
const EVP_CIPHER* cipher() {
  static const EVP_CIPHER* const found = EVP_CIPHER_fetch(nullptr, "AES-256-GCM", nullptr);
  HEADRACE_CHECK(found != nullptr);
  return found;
}

unsigned char* octets(std::byte* bytes) noexcept { return reinterpret_cast<unsigned char*>(bytes); }
const unsigned char* octets(const std::byte* bytes) noexcept {
  return reinterpret_cast<const unsigned char*>(bytes);
}

}  // namespace

Salt random_salt() {
  Salt salt;
  while (::getrandom(salt.data(), salt.size(), 0) != static_cast<ssize_t>(salt.size())) {
  }
  return salt;
}

Sealer::Sealer(const SealKey& key, std::string_view purpose, std::span<const std::byte> salt)
    : context_(EVP_CIPHER_CTX_new()) {
  SealKey::Bytes own = key.derive(purpose, salt);
  HEADRACE_CHECK(context_ != nullptr);
  HEADRACE_CHECK(EVP_CipherInit_ex2(context_, cipher(), octets(own.data()), nullptr, 1, nullptr) ==
                 1);
  OPENSSL_cleanse(own.data(), own.size());
}

Sealer::~Sealer() { EVP_CIPHER_CTX_free(context_); }  // Which wipes the key in it.

void Sealer::begin(std::uint64_t number, bool is_sealing) {
  std::array<std::byte, kNonceBytes> nonce{};
  store_le<std::uint64_t>(nonce.data() + 4, number);
  HEADRACE_CHECK(EVP_CipherInit_ex2(context_, nullptr, nullptr, octets(nonce.data()),
                                    is_sealing ? 1 : 0, nullptr) == 1);
}

void Sealer::update(std::span<const std::byte> context, std::span<const std::byte> from,
                    std::span<std::byte> to) {
  HEADRACE_CHECK(context.size() <= INT_MAX && from.size() <= INT_MAX && from.size() == to.size());
  int count = 0;
  if (!context.empty())
    HEADRACE_CHECK(EVP_CipherUpdate(context_, nullptr, &count, octets(context.data()),
                                    static_cast<int>(context.size())) == 1);
  if (!from.empty())
    HEADRACE_CHECK(EVP_CipherUpdate(context_, octets(to.data()), &count, octets(from.data()),
                                    static_cast<int>(from.size())) == 1);
}

void Sealer::seal(std::uint64_t number, std::span<const std::byte> context,
                  std::span<const std::byte> from, std::span<std::byte> to,
                  std::span<std::byte, kTagBytes> tag) {
  begin(number, true);
  update(context, from, to);
  int count = 0;
  std::array<unsigned char, kTagBytes> rest;
  HEADRACE_CHECK(EVP_CipherFinal_ex(context_, rest.data(), &count) == 1);
  HEADRACE_CHECK(EVP_CIPHER_CTX_ctrl(context_, EVP_CTRL_AEAD_GET_TAG, kTagBytes, tag.data()) == 1);
}

bool Sealer::open(std::uint64_t number, std::span<const std::byte> context,
                  std::span<const std::byte> from, std::span<std::byte> to,
                  std::span<const std::byte, kTagBytes> tag) {
  begin(number, false);
  update(context, from, to);
  // OpenSSL only reads it.
  auto* const expected = const_cast<std::byte*>(tag.data());
  HEADRACE_CHECK(EVP_CIPHER_CTX_ctrl(context_, EVP_CTRL_AEAD_SET_TAG, kTagBytes, expected) == 1);
  int count = 0;
  std::array<unsigned char, kTagBytes> rest;
  return EVP_CipherFinal_ex(context_, rest.data(), &count) == 1;
}

}  // namespace headrace::seal
