#pragma once
/// \file
/// The file of one extent: a header, then the bytes. Layout (little-endian):
///
/// | at | |
/// |---|---|
/// | 0 | "HRXT", u32 version (1), u32 bytes of a chunk, u32 chunks |
/// | 16 | u64 x 2 object, u64 offset, u64 length, u64 size of the object (0: unknown) |
/// | 56 | u32 bytes of the ETag, u32 bytes of the URL, u32 zero, u32 CRC32C of the header |
/// | 72 | u32 CRC32C of each chunk, ETag, URL, zeros |
/// | 4096 | the bytes |
///
/// The header's sum is taken with its own four bytes as zeros. A chunk has 64 KiB, or as much more,
/// by powers of two, as leaves 512 chunks at most: a few bytes can be read and proved without the
/// rest. ETag and URL are for people; what does not fit is cut off.
///
/// Threads: any.
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "headrace/status.h"
#include "tier/extent_name.h"

namespace headrace::tier {

/// What a header says, but for the sums.
struct ExtentInfo {
  ExtentName name;
  std::uint64_t object_size_bytes = 0;
  std::string url, etag;
};

inline constexpr std::size_t kHeaderBytes = 4096;
using HeaderBytes = std::array<std::byte, kHeaderBytes>;

/// The header of `info` over `data`, which it reads once. \pre data.size() is the extent's length.
HeaderBytes make_header(const ExtentInfo& info, std::span<const std::byte> data);

/// Errors: kCorrupt (not a header, or not of `name` where one is given), those of reading.
Result<ExtentInfo> read_info(int fd, const ExtentName* name);

/// Fills `out` with bytes of the extent from `from_bytes` (of the extent) on, proved by their sums;
/// `object_size_bytes` with what the header says. \pre from_bytes + out.size() <= length.
/// Errors: kCorrupt, those of reading.
Status read_extent(int fd, const ExtentName& name, std::uint64_t from_bytes,
                   std::span<std::byte> out, std::uint64_t& object_size_bytes);

/// Writes the extent and shows it under its name in `directory` all at once: whoever is killed
/// meanwhile leaves nothing. Errors: kChanged (it is there already), those of writing.
Status publish_extent(int directory, const ExtentName& name, std::span<const std::byte> header,
                      std::span<const std::byte> data);

}  // namespace headrace::tier
