#pragma once
/// \file
/// Riegeli/records: a file of 64 KiB blocks, each begun by a header, through which chunks of
/// records run. Pure.
///
/// Source: github.com/google/riegeli doc/riegeli_records_file_format.md, checked against files that
/// array_record wrote.
///
/// Threads: functions.
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "headrace/status.h"

namespace headrace::detail {

inline constexpr std::uint64_t kRiegeliBlockBytes = std::uint64_t{1} << 16;
inline constexpr std::uint64_t kRiegeliBlockHeaderBytes = 24;
inline constexpr std::uint64_t kRiegeliChunkHeaderBytes = 40;

enum class RiegeliChunk : std::uint8_t {
  kSignature = 's',
  kMetadata = 'm',
  kPadding = 'p',
  kSimple = 'r',
  kTransposed = 't'
};

struct RiegeliChunkHeader {
  std::uint64_t data_bytes = 0;
  std::uint64_t data_hash = 0;
  std::uint64_t record_count = 0;
  std::uint64_t decoded_bytes = 0;  ///< All records together.
  RiegeliChunk type = RiegeliChunk::kPadding;
};

/// Copies the bytes of [offset, offset + stored.size()) of a file without block headers to the
/// front of `out`, up to its size; returns how many.
std::size_t strip_riegeli_blocks(std::span<const std::byte> stored, std::uint64_t offset,
                                 std::span<std::byte> out) noexcept;

/// Parses the 40 bytes of a chunk's header. Errors: kCorrupt (its hash).
Result<RiegeliChunkHeader> parse_riegeli_chunk(std::span<const std::byte> bytes);

/// Reads the chunk of simple records that begins at `offset` of a file, whose bytes from there on
/// are `stored` (more may follow). `raw` gets the end of each record, counted from the first, as
/// u64, and then the records. Errors: kCorrupt (hashes, sizes; another number of records or bytes
/// than `raw` has room for: 8 * record_count + decoded bytes), kUnsupported (transposed, unknown
/// compression).
Status read_simple_chunk(std::span<const std::byte> stored, std::uint64_t offset,
                         std::uint64_t record_count, std::span<std::byte> raw);

/// The same of a chunk whose header is not known yet; the decoded bytes up to `most_bytes`.
struct RiegeliRecords {
  std::vector<std::byte> raw;
  std::uint64_t record_count = 0;
  /// Bytes of record `index`.
  Result<std::span<const std::byte>> record(std::uint64_t index) const;
};
Result<RiegeliRecords> read_records(std::span<const std::byte> stored, std::uint64_t offset,
                                    std::uint64_t most_bytes);

/// Record `index` in what read_simple_chunk() wrote. Errors: kCorrupt.
Result<std::span<const std::byte>> record_of(std::span<const std::byte> raw,
                                             std::uint64_t record_count, std::uint64_t index);

}  // namespace headrace::detail
