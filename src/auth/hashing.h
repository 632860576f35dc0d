#pragma once
/// \file
/// SHA-256 and HMAC with buffers that are used again: what signing needs of OpenSSL. Private to
/// src/auth/.
#include <openssl/evp.h>

#include <array>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "auth/sigv4.h"
#include "base/mutex.h"

namespace headrace::auth::detail {

using Digest = std::array<unsigned char, 32>;

/// Credential scope without the credentials: "20150830/us-east-1/s3/aws4_request".
struct Scope {
  std::string_view date;  ///< 8 characters.
  std::string_view region;
  std::string_view service;
};

/// Of both. `context` was initialised with its digest, and is as before afterwards.
Digest hash(EVP_MD_CTX* context, std::string_view first, std::string_view second);

void append_hex(const Digest& digest, std::string& out);

/// Appends the value of a field as it is signed: trimmed, inner runs of spaces squeezed to one.
void append_squeezed(std::string_view value, std::string& out);

/// One signing context: hash state, text buffer, the last derived key. One user at a time.
class Scratch {
 public:
  /// `md` outlives the scratch. Null when out of memory or when the provider has no such digest.
  static std::unique_ptr<Scratch> create(const EVP_MD* md);
  ~Scratch();
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  /// Signature of `request` made at `amz_date` (16 characters) in `scope`.
  Digest sign(const CanonicalRequest& request, std::string_view secret, std::string_view amz_date,
              const Scope& scope);

 private:
  explicit Scratch(EVP_MD_CTX* context) noexcept : context_(context) {}
  Digest hash(std::string_view first, std::string_view second = {}) {
    return detail::hash(context_, first, second);
  }
  Digest hmac(std::string_view key, std::string_view text);
  const Digest& signing_key(std::string_view secret, const Scope& scope);

  EVP_MD_CTX* const context_;
  std::string text_;
  // What key_ was derived from.
  std::string secret_, date_, region_, service_;
  Digest key_{};
};

/// Scratches for as many threads as sign at once. Thread-safe.
class ScratchPool {
 public:
  static Result<std::unique_ptr<ScratchPool>> create();
  ~ScratchPool();
  ScratchPool(const ScratchPool&) = delete;
  ScratchPool& operator=(const ScratchPool&) = delete;

  std::unique_ptr<Scratch> take() HEADRACE_EXCLUDES(mutex_);
  void give_back(std::unique_ptr<Scratch> scratch) HEADRACE_EXCLUDES(mutex_);

 private:
  explicit ScratchPool(EVP_MD* md) noexcept : md_(md) {}

  EVP_MD* const md_;  // fetched once: the look-up costs more than a signature
  Mutex mutex_;
  std::vector<std::unique_ptr<Scratch>> idle_ HEADRACE_GUARDED_BY(mutex_);
};

/// Borrows a scratch for one signature.
class Lease {
 public:
  explicit Lease(ScratchPool& pool) : pool_(pool), scratch_(pool.take()) {}
  ~Lease() { pool_.give_back(std::move(scratch_)); }
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;
  Scratch* operator->() const noexcept { return scratch_.get(); }

 private:
  ScratchPool& pool_;
  std::unique_ptr<Scratch> scratch_;
};

}  // namespace headrace::auth::detail
