#pragma once
/// \file
/// The checksums and part sizes that belong to one version of an object, kept in an attribute of
/// its file. Pure but for the two functions that take a file.
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sim/checksum.h"

namespace headrace::sim {

constexpr std::size_t kMaxSumsBytes = 3000;  // ext4 holds 4 KiB of attributes in all

struct ObjectSums {
  std::string field;  ///< "x-amz-checksum-crc32c"; empty: no checksum.
  std::string value;  ///< Base64, "-N" with COMPOSITE.
  bool is_composite = false;
  std::vector<std::uint64_t> part_sizes;  ///< Of a multipart object.
  std::vector<std::string> part_values;   ///< Base64; empty when not known.

  bool empty() const noexcept { return field.empty() && part_sizes.empty(); }
  /// Index of the part that is exactly [offset, offset + length).
  std::optional<std::size_t> part_at(std::uint64_t offset, std::uint64_t length) const noexcept;
};

/// Text form; runs of equal sizes are one item. What does not fit into `limit_bytes` is left out,
/// values of parts first.
std::string to_text(const ObjectSums& sums, std::size_t limit_bytes = kMaxSumsBytes);
/// Empty for anything malformed.
ObjectSums sums_from_text(std::string_view text);

/// The raw text with an open file; empty without one.
std::string read_sums(int fd);
/// Best effort: file systems without user attributes keep no checksums. `taken_bytes`: of other
/// attributes of the file.
void write_sums(int fd, const ObjectSums& sums, std::size_t taken_bytes = 0);

/// Base64 of that sum over all bytes of the file; nullopt when it cannot be read.
std::optional<std::string> sum_of_file(ChecksumKind kind, int fd);

/// The sum of a whole object from those of its parts, or of their raw values (COMPOSITE). Nullopt:
/// cannot be combined (SHA, or COMPOSITE of CRC-64).
std::optional<std::string> combine_sums(ChecksumKind kind, bool is_composite,
                                        const std::vector<std::string>& values,
                                        const std::vector<std::uint64_t>& sizes);

}  // namespace headrace::sim
