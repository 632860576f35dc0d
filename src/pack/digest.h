#pragma once
/// \file
/// Digests of shards, computed piece by piece, and of the plan.
///
/// Threads: values; one owner at a time.
#include <openssl/evp.h>
#include <xxhash.h>

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "headrace/status.h"

namespace headrace::pack_detail {

/// "sha1", "sha256", "xxh64" or "xxh3_64" of bytes that come in pieces.
class Digest {
 public:
  /// Errors: kUnsupported (name).
  static Result<Digest> create(std::string_view name);
  void update(std::span<const std::byte> bytes);
  /// Lower-case hex, as Python's hashlib and xxhash print it. Ends the digest.
  std::string finish();

 private:
  struct FreeEvp {
    void operator()(EVP_MD_CTX* p) const noexcept { EVP_MD_CTX_free(p); }
  };
  struct FreeXxh {
    void operator()(XXH64_state_t* p) const noexcept { XXH64_freeState(p); }
    void operator()(XXH3_state_t* p) const noexcept { XXH3_freeState(p); }
  };
  std::unique_ptr<EVP_MD_CTX, FreeEvp> evp_;
  std::unique_ptr<XXH64_state_t, FreeXxh> xxh64_;
  std::unique_ptr<XXH3_state_t, FreeXxh> xxh3_;
};

}  // namespace headrace::pack_detail
