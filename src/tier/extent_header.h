#pragma once
/// \file
/// The first page of an extent's file. Layout (little-endian):
///
/// | at | |
/// |---|---|
/// | 0 | "HRXT", u32 version (1; 2: encrypted), u32 bytes of a chunk, u32 chunks |
/// | 16 | u64 x 2 object, u64 offset, u64 length, u64 size of the object (0: unknown) |
/// | 56 | u32 bytes of the ETag, u32 bytes of the URL, u32 zero, u32 CRC32C of the header |
/// | 72 | u32 CRC32C of each chunk, as it lies there |
/// | then | encrypted: 8 bytes of the key's id, 16 of salt, 16 of the header's tag, 16 of each chunk's |
/// | then | ETag, URL, zeros |
///
/// The header's sum is taken with its own four bytes as zeros. A chunk of what comes as a whole has
/// 64 KiB, or as much more, by powers of two, as leaves 512 chunks at most, or 128 where it is
/// encrypted: a few bytes can be read and proved without the rest. Of what comes in parts, a part
/// is a chunk. ETag and URL are for people; what does not fit is cut off.
///
/// Encrypted (seal/sealer.h): the file's key is derived from the user's and the salt for the
/// purpose kExtentPurpose. Chunk n is block n, and the page, with its sum and its own tag as zeros,
/// is the context of an empty block 2^64 - 1. Sums are of what lies on the disk: who has no key can
/// tell damage. Pure.
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/endian.h"
#include "headrace/status.h"
#include "seal/sealer.h"
#include "tier/extent_name.h"

namespace headrace::tier {

inline constexpr std::string_view kExtentPurpose = "headrace cache extent 1";

/// What a header says, but for the sums.
struct ExtentInfo {
  ExtentName name;
  std::uint64_t object_size_bytes = 0;
  std::string url, etag;
};

/// Also what reading and writing past the page cache wants addresses and lengths to be multiples
/// of.
inline constexpr std::size_t kHeaderBytes = 4096;

/// Bytes that have a sum of their own, in an extent of `length_bytes` (> 0).
std::uint64_t chunk_bytes_of(std::uint64_t length_bytes, bool is_sealed) noexcept;

/// As many chunks as any file may have.
inline constexpr std::uint64_t kMostParts = 128;

/// A header in the making, for chunks that come in any order.
class HeaderDraft {
 public:
  /// `key`: outlives it. \pre no more than kMostParts, or chunk_bytes_of() says so.
  HeaderDraft(std::uint64_t chunk_bytes, std::uint64_t chunk_count, const SealKey* key);
  /// Takes note of a chunk, and with a key encrypts it. Each once.
  void add(std::uint64_t chunk, std::span<std::byte> bytes);
  /// Proves a chunk that was added, as it lies in the file, and decrypts it. Errors: kCorrupt.
  Status open(std::uint64_t chunk, std::span<std::byte> bytes);
  /// Fills `header` in. \pre header.size() == kHeaderBytes, all chunks were added.
  void finish(const ExtentInfo& info, std::span<std::byte> header);

 private:
  std::size_t seal_at() const noexcept;
  std::span<std::byte, seal::kTagBytes> tag_of(std::uint64_t chunk) noexcept;

  const std::uint64_t chunk_bytes_, chunk_count_;
  const SealKey* const key_;
  seal::Salt salt_{};
  std::optional<seal::Sealer> sealer_;
  std::array<std::byte, kHeaderBytes> page_{};
};

/// Fills `header` in for `info` over `data`, which it reads once; with a key, encrypts it. \pre
/// header.size() == kHeaderBytes, data.size() is the extent's length.
void make_header(const ExtentInfo& info, std::span<std::byte> data, std::span<std::byte> header,
                 const SealKey* key);

/// A header, as far as check() found it good.
class ExtentHeader {
 public:
  /// `bytes`: kHeaderBytes; outlive this.
  explicit ExtentHeader(std::span<const std::byte> bytes) noexcept : bytes_(bytes) {}
  /// Errors: kCorrupt (not a header, or not of `name` where one is given). The rest is for headers
  /// without error.
  Status check(const ExtentName* name) const;
  /// Whether it is as a cache with this key writes it: of that key and this header unchanged, or
  /// without one not encrypted. `sealer`: of the file, where there is a key. Errors: kCorrupt.
  Status check_key(const SealKey* key, std::optional<seal::Sealer>& sealer) const;
  bool is_sealed() const noexcept;

  ExtentName name() const noexcept { return {{word(16), word(24)}, word(32), word(40)}; }
  std::uint64_t object_size_bytes() const noexcept { return word(48); }
  std::uint64_t chunk_bytes() const noexcept { return half(8); }
  /// Errors: kCorrupt (`data` is not what the file has in this chunk).
  Status prove(std::uint64_t chunk, std::span<const std::byte> data) const;
  /// The same by the chunk's tag, and decrypts it in place. \pre is_sealed().
  Status open(std::uint64_t chunk, std::span<std::byte> data, seal::Sealer& sealer) const;
  ExtentInfo info() const;

 private:
  std::uint64_t word(std::size_t at) const noexcept {
    return load_le<std::uint64_t>(bytes_.data() + at);
  }
  std::uint32_t half(std::size_t at) const noexcept {
    return load_le<std::uint32_t>(bytes_.data() + at);
  }
  std::size_t etag_bytes() const noexcept { return half(56); }
  std::size_t url_bytes() const noexcept { return half(60); }
  std::size_t seal_at() const noexcept;
  std::size_t texts_at() const noexcept;

  const std::span<const std::byte> bytes_;
};

}  // namespace headrace::tier
