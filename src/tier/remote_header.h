#pragma once
/// \file
/// What stands before the bytes of an extent, or of a part of one, where others keep them. Layout
/// (little-endian):
///
/// | at | |
/// |---|---|
/// | 0 | "HRXR", u32 version (1), u32 bytes of the header, u32 CRC32C of the header |
/// | 16 | u64 x 2 object, u64 offset, u64 length, u64 size of the object (0: unknown) |
/// | 56 | u64 where in the extent the part begins |
/// | 64 | u32 bytes of the part, u32 CRC32C of them, u32 bytes of the URL, u32 of the ETag |
/// | 80 | URL, ETag |
///
/// The header's sum is taken with its own four bytes as zeros. Whoever reads knows all of it but
/// the sums and the object's size: so it is compared, not parsed. Pure.
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "tier/extent_header.h"

namespace headrace::tier {

/// A part of an extent.
struct ExtentPart {
  std::uint64_t from_bytes = 0, length_bytes = 0;
};

/// How an extent is cut into parts of at most `most_bytes` (> 0): all of one size but for the last,
/// which may be shorter. \pre length_bytes > 0.
class ExtentParts {
 public:
  ExtentParts(std::uint64_t length_bytes, std::uint64_t most_bytes) noexcept
      : length_bytes_(length_bytes), count_((length_bytes + most_bytes - 1) / most_bytes) {
    part_bytes_ = (length_bytes + count_ - 1) / count_;
    count_ = (length_bytes + part_bytes_ - 1) / part_bytes_;  // Rounding may leave none for one.
  }
  std::uint64_t count() const noexcept { return count_; }
  ExtentPart part(std::uint64_t index) const noexcept {
    const std::uint64_t from = index * part_bytes_;
    return {from, from + part_bytes_ <= length_bytes_ ? part_bytes_ : length_bytes_ - from};
  }

 private:
  std::uint64_t length_bytes_, count_, part_bytes_ = 0;
};

/// Extents with longer texts are not kept: their headers would outgrow small extents, and an item.
inline constexpr std::size_t kMostRemoteTextBytes = 3000;
inline constexpr std::size_t kMostRemoteHeaderBytes = 80 + kMostRemoteTextBytes;

inline bool fits_remote_header(const ExtentInfo& info) noexcept {
  return info.url.size() + info.etag.size() <= kMostRemoteTextBytes;
}
std::size_t remote_header_bytes(const ExtentInfo& info) noexcept;

/// Fills `header` (remote_header_bytes()) in for a part of the extent whose bytes are `data`.
void make_remote_header(const ExtentInfo& info, std::uint64_t from_bytes,
                        std::span<const std::byte> data, std::span<std::byte> header);

/// What a header says of the object's size, if it is that of this part of this extent with these
/// bytes; None otherwise. `info`'s own size does not matter.
std::optional<std::uint64_t> check_remote_header(const ExtentInfo& info, std::uint64_t from_bytes,
                                                 std::span<const std::byte> data,
                                                 std::span<const std::byte> header);

}  // namespace headrace::tier
