#pragma once
/// \file
/// The checksums that S3 clients send with an upload. Streaming; one owner.
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "headrace/status.h"

namespace headrace::sim {

enum class ChecksumKind : std::uint8_t { kCrc32, kCrc32c, kCrc64Nvme, kMd5, kSha1, kSha256 };

class Checksum {
 public:
  /// Errors: kInternal when OpenSSL lacks the digest.
  static Result<std::unique_ptr<Checksum>> create(ChecksumKind kind);
  virtual ~Checksum() = default;
  virtual void update(std::string_view bytes) = 0;
  /// The raw bytes, CRCs in network order. Call once.
  virtual std::string finish() = 0;
};

/// "x-amz-checksum-crc32c" and its like; false for other names.
bool checksum_kind_of(std::string_view field_name, ChecksumKind& out) noexcept;

std::string to_base64(std::string_view bytes);
/// Nullopt for anything malformed.
std::optional<std::string> from_base64(std::string_view text);

}  // namespace headrace::sim
