#pragma once
/// \file
/// Blocks of an encrypted data file: block sealing and opening, by where a block lies in the file.
///
/// Threads: one at a time.
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "headrace/checkpoint.h"
#include "headrace/status.h"
#include "seal/seal_header.h"
#include "seal/sealer.h"

namespace headrace::checkpoint {

inline constexpr std::string_view kDataPurpose = "headrace checkpoint data 1";
/// What stands before the pieces of an encrypted file.
inline constexpr std::uint64_t kSealPageBytes = 4096;

class BlockSealer {
 public:
  /// `salt`: of the file.
  BlockSealer(const SealKey& key, std::span<const std::byte> salt)
      : sealer_(key, kDataPurpose, salt) {}

  /// `at_bytes`: where the block begins in the file, which no other one does.
  void seal(std::uint64_t at_bytes, std::span<const std::byte> from, std::span<std::byte> to,
            SealTag& tag) {
    sealer_.seal(at_bytes, {}, from, to, tag);
  }
  [[nodiscard]] bool open(std::uint64_t at_bytes, std::span<const std::byte> from,
                          std::span<std::byte> to, const SealTag& tag) {
    return sealer_.open(at_bytes, {}, from, to, tag);
  }

 private:
  seal::Sealer sealer_;
};

}  // namespace headrace::checkpoint
