#pragma once
/// \file
/// Members of a zip file (`.npz`), found by its central directory. Pure.
///
/// Source: APPNOTE.TXT 6.3.10 of PKWARE, sections 4.3.7 (local header), 4.3.12 (central directory),
/// 4.3.14 to 4.3.16 (end records, zip64), 4.5.3 (zip64 extra field).
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "headrace/status.h"

namespace headrace::detail {

/// The end record, a comment of the greatest length, and zip64's locator and record before it.
inline constexpr std::uint64_t kZipTailBytes = 22 + 65535 + 20 + 56;
inline constexpr std::uint64_t kZipLocalHeaderBytes = 30;
/// Bounds the work of a hostile file; an .npz has a member for each array.
inline constexpr std::uint64_t kMostZipMembers = 65535;

/// Where the central directory is.
struct ZipDirectoryPlace {
  std::uint64_t offset_bytes = 0;
  std::uint64_t length_bytes = 0;
  std::uint64_t member_count = 0;
};
/// `tail`: the last min(file_bytes, kZipTailBytes) bytes of a file. Errors: kCorrupt (no zip, or
/// cut off), kUnsupported (several disks, too many members).
Result<ZipDirectoryPlace> find_zip_directory(std::span<const std::byte> tail,
                                             std::uint64_t file_bytes);

struct ZipMember {
  std::string name;
  std::uint64_t stored_bytes = 0;
  std::uint64_t raw_bytes = 0;
  std::uint64_t header_offset = 0;  ///< Of its local header; it and stored_bytes lie in the file.
  std::uint32_t crc32 = 0;          ///< Of its raw bytes.
  unsigned method = 0;              ///< 0: stored, 8: deflated.
  bool is_encrypted = false;
};
/// Errors: kCorrupt.
Result<std::vector<ZipMember>> parse_zip_directory(std::span<const std::byte> directory,
                                                   const ZipDirectoryPlace& place,
                                                   std::uint64_t file_bytes);

/// Bytes of a local header with its name and extra field, after which the member's data begin.
/// `header`: its first kZipLocalHeaderBytes. Errors: kCorrupt.
Result<std::uint64_t> zip_local_header_bytes(std::span<const std::byte> header);

}  // namespace headrace::detail
