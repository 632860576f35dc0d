#pragma once
/// \file
/// Digests as MDS indexes list them, "name=hex" joined by spaces.
///
/// Threads: any; calls keep no state.
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "headrace/status.h"

namespace headrace::detail {

/// True for the names that check_digest() can compute: xxh32 xxh64 xxh128 xxh3_64 xxh3_128 md5 sha1
/// sha224 sha256 sha384 sha512 sha3_224 sha3_256 sha3_384 sha3_512 blake2b blake2s.
bool is_known_digest(std::string_view name);

/// A digest of bytes that come in pieces.
class Digester {
 public:
  /// nullopt: unknown name, or one that the OpenSSL provider refuses.
  static std::optional<Digester> create(std::string_view name);
  Digester(Digester&&) noexcept;
  Digester& operator=(Digester&&) noexcept;
  ~Digester();
  void update(std::span<const std::byte> bytes);
  /// Lower-case hex. Call once, last.
  std::string finish();

 private:
  struct State;
  explicit Digester(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

/// Lower-case hex digest; empty for an unknown name.
std::string hex_digest(std::string_view name, std::span<const std::byte> bytes);

/// Compares the cheapest known digest of the list; one is enough to find damage. A list without a
/// known one passes. Errors: kCorrupt.
Status check_digest(std::string_view list, std::span<const std::byte> bytes);

}  // namespace headrace::detail
