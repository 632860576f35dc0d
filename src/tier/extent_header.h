#pragma once
/// \file
/// The first page of an extent's file. Layout (little-endian):
///
/// | at | |
/// |---|---|
/// | 0 | "HRXT", u32 version (1), u32 bytes of a chunk, u32 chunks |
/// | 16 | u64 x 2 object, u64 offset, u64 length, u64 size of the object (0: unknown) |
/// | 56 | u32 bytes of the ETag, u32 bytes of the URL, u32 zero, u32 CRC32C of the header |
/// | 72 | u32 CRC32C of each chunk, ETag, URL, zeros |
///
/// The header's sum is taken with its own four bytes as zeros. A chunk has 64 KiB, or as much more,
/// by powers of two, as leaves 512 chunks at most: a few bytes can be read and proved without the
/// rest. ETag and URL are for people; what does not fit is cut off. Pure.
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/endian.h"
#include "headrace/status.h"
#include "tier/extent_name.h"

namespace headrace::tier {

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
std::uint64_t chunk_bytes_of(std::uint64_t length_bytes) noexcept;

/// Fills `header` in for `info` over `data`, which it reads once. \pre header.size() ==
/// kHeaderBytes, data.size() is the extent's length.
void make_header(const ExtentInfo& info, std::span<const std::byte> data,
                 std::span<std::byte> header);

/// A header, as far as check() found it good.
class ExtentHeader {
 public:
  /// `bytes`: kHeaderBytes; outlive this.
  explicit ExtentHeader(std::span<const std::byte> bytes) noexcept : bytes_(bytes) {}
  /// Errors: kCorrupt (not a header, or not of `name` where one is given). The rest is for headers
  /// without error.
  Status check(const ExtentName* name) const;

  ExtentName name() const noexcept { return {{word(16), word(24)}, word(32), word(40)}; }
  std::uint64_t object_size_bytes() const noexcept { return word(48); }
  std::uint64_t chunk_bytes() const noexcept { return half(8); }
  /// Errors: kCorrupt (`data` is not what the extent has in this chunk).
  Status prove(std::uint64_t chunk, std::span<const std::byte> data) const;
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
  std::size_t texts_at() const noexcept;

  const std::span<const std::byte> bytes_;
};

}  // namespace headrace::tier
