// GMAC is AES-GCM of which all is authenticated and nothing encrypted (NIST SP 800-38D). Each block
// gets the same nonce, which a GMAC that others see must never have: from two fingerprints of one
// nonce the key follows. Here nobody sees any, and what counts is GHASH's bound under a secret key:
// two blocks of n times 16 bytes collide for at most n + 1 of 2^128 keys.
#include "checkpoint/fingerprinter.h"

#include <openssl/evp.h>

#include <array>

#include "base/check.h"

namespace headrace::checkpoint {
namespace {

constexpr std::array<unsigned char, 12> kNonce{};

const unsigned char* octets(const std::byte* bytes) noexcept {
  return reinterpret_cast<const unsigned char*>(bytes);
}

}  // namespace

void Fingerprinter::Free::operator()(EVP_CIPHER_CTX* context) const noexcept {
  EVP_CIPHER_CTX_free(context);
}

Result<Fingerprinter> Fingerprinter::make(const FingerprintKey& key) {
  Context context(EVP_CIPHER_CTX_new());
  if (!context || EVP_EncryptInit_ex(context.get(), EVP_aes_128_gcm(), nullptr, octets(key.data()),
                                     kNonce.data()) != 1) {
    return Status(Code::kInternal, "OpenSSL gives no AES-128-GCM, by which blocks are compared");
  }
  return Fingerprinter(std::move(context));
}

Fingerprint Fingerprinter::print(std::span<const std::byte> block) {
  EVP_CIPHER_CTX* const context = context_.get();
  Fingerprint out;
  int moved = 0;
  // A block has kSumBlockBytes at most, which an int holds.
  const bool is_done =
      EVP_EncryptInit_ex(context, nullptr, nullptr, nullptr, kNonce.data()) == 1 &&
      EVP_EncryptUpdate(context, nullptr, &moved, octets(block.data()),
                        static_cast<int>(block.size())) == 1 &&
      EVP_EncryptFinal_ex(context, reinterpret_cast<unsigned char*>(out.data()), &moved) == 1 &&
      EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_GCM_GET_TAG, static_cast<int>(out.size()),
                          out.data()) == 1;
  HEADRACE_CHECK(is_done);
  return out;
}

}  // namespace headrace::checkpoint
