#pragma once
/// \file
/// BlockTagger: tags of blocks under a secret key, by which bytes are known again.
///
/// Threads: one at a time.
#include <openssl/types.h>

#include <cstddef>
#include <memory>
#include <span>

#include "headrace/checkpoint.h"
#include "headrace/status.h"

namespace headrace::checkpoint {

class BlockTagger {
 public:
  /// Errors: kInternal (no AES in this OpenSSL).
  static Result<BlockTagger> make(const TagKey& key);

  BlockTag tag(std::span<const std::byte> block);

 private:
  struct Free {
    void operator()(EVP_CIPHER_CTX* context) const noexcept;
  };
  using Context = std::unique_ptr<EVP_CIPHER_CTX, Free>;
  explicit BlockTagger(Context context) noexcept : context_(std::move(context)) {}

  Context context_;
};

}  // namespace headrace::checkpoint
