#pragma once
/// \file
/// Sealer: blocks of one file, encrypted and authenticated (AES-256-GCM, NIST SP 800-38D).
///
/// Each file has a key of its own, derived from the user's, a purpose and a random salt; so a
/// block's number in the file can be its nonce: no key meets a nonce twice, and a block of another
/// file, or another one of this, does not open.
///
/// Threads: one at a time.
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "headrace/seal_key.h"

struct evp_cipher_ctx_st;

namespace headrace::seal {

inline constexpr std::size_t kTagBytes = 16;
inline constexpr std::size_t kSaltBytes = 16;
using Salt = std::array<std::byte, kSaltBytes>;

/// Of the system's generator.
Salt random_salt();

class Sealer {
 public:
  /// `salt`: of the file; for one that is being made, random_salt(). \pre OpenSSL has AES-256-GCM.
  Sealer(const SealKey& key, std::string_view purpose, std::span<const std::byte> salt);
  ~Sealer();
  Sealer(const Sealer&) = delete;
  Sealer& operator=(const Sealer&) = delete;

  /// Encrypts `from` into `to` (of the same size; may be the same bytes) as block `number`, which
  /// is sealed once, or with the same bytes again; `tag` proves it and `context`, which is not
  /// encrypted. \pre less than 2 GiB each.
  void seal(std::uint64_t number, std::span<const std::byte> context,
            std::span<const std::byte> from, std::span<std::byte> to,
            std::span<std::byte, kTagBytes> tag);
  /// Undoes seal(). False: it is not what was sealed so; then `to` holds nothing of use.
  [[nodiscard]] bool open(std::uint64_t number, std::span<const std::byte> context,
                          std::span<const std::byte> from, std::span<std::byte> to,
                          std::span<const std::byte, kTagBytes> tag);

 private:
  void begin(std::uint64_t number, bool is_sealing);
  void update(std::span<const std::byte> context, std::span<const std::byte> from,
              std::span<std::byte> to);

  evp_cipher_ctx_st* const context_;
};

}  // namespace headrace::seal
