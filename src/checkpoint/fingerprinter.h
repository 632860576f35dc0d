#pragma once
/// \file
/// Fingerprinter: fingerprints of blocks under a secret key, by which bytes are known again.
///
/// Threads: one at a time.
#include <openssl/types.h>

#include <cstddef>
#include <memory>
#include <span>

#include "headrace/checkpoint.h"
#include "headrace/status.h"

namespace headrace::checkpoint {

class Fingerprinter {
 public:
  /// Errors: kInternal (no AES in this OpenSSL).
  static Result<Fingerprinter> make(const FingerprintKey& key);

  Fingerprint print(std::span<const std::byte> block);

 private:
  struct Free {
    void operator()(EVP_CIPHER_CTX* context) const noexcept;
  };
  using Context = std::unique_ptr<EVP_CIPHER_CTX, Free>;
  explicit Fingerprinter(Context context) noexcept : context_(std::move(context)) {}

  Context context_;
};

}  // namespace headrace::checkpoint
