// Chunks run through blocks of 64 KiB, each of which begins with a header of its own;
// strip_riegeli_blocks() takes those out first, so that all else sees chunks in one piece.
//
// Both hashes (HighwayHash of header and data) are compared before anything is believed; sizes are
// bounded all the same, since a hash protects from accidents, not from intent: room is taken only
// for as many records and bytes as the footer, or the caller's limit, allows.
#include "shard/formats/arrayrecord/riegeli.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <optional>

#include "base/endian.h"
#include "shard/codec/inflate.h"
#include "shard/formats/arrayrecord/array_record_driver.h"
#include "shard/formats/arrayrecord/highway_hash.h"
#include "wire/message.h"

namespace headrace::detail {
namespace {

// "Riegeli/" and "records\n", twice.
constexpr std::array<std::uint64_t, 4> kHashKey{0x2f696c6567656952, 0x0a7364726f636572,
                                                0x2f696c6567656952, 0x0a7364726f636572};
constexpr std::size_t kHashBytes = 8;

Status corrupt(std::string_view what) {
  return Status(Code::kCorrupt, fmt::format("riegeli: {}", what));
}

std::optional<Compression> compression_of(std::byte mark) {
  switch (std::to_integer<char>(mark)) {
    case 0:
      return Compression::kNone;
    case 'b':
      return Compression::kBrotli;
    case 'z':
      return Compression::kZstd;
    case 's':
      return Compression::kSnappy;
    default:
      return std::nullopt;
  }
}

// Inflates a buffer of a chunk into exactly `out`: compressed ones say their size in front.
Status read_buffer(Compression compression, std::span<const std::byte> buffer,
                   std::span<std::byte> out) {
  if (compression == Compression::kNone) {
    if (buffer.size() != out.size()) return corrupt("a buffer of another size than it should have");
    if (!out.empty()) std::memcpy(out.data(), buffer.data(), out.size());
    return Status();
  }
  WireReader reader(buffer);
  std::uint64_t bytes = 0;
  if (!reader.read_varint(bytes) || bytes != out.size())
    return corrupt("a buffer of another size than it should have");
  const auto used = static_cast<std::size_t>(reader.position() - buffer.data());
  // An empty buffer may have no compressed bytes at all.
  if (out.empty()) return Status();
  return inflate(compression, buffer.subspan(used), out);
}

// Inflated size of the buffer of sizes. Bounded: a size takes at most ten bytes.
Result<std::vector<std::byte>> read_sizes(Compression compression,
                                          std::span<const std::byte> buffer,
                                          std::uint64_t record_count) {
  std::uint64_t bytes = buffer.size();
  WireReader reader(buffer);
  if (compression != Compression::kNone && !reader.read_varint(bytes))
    return corrupt("broken sizes");
  if (bytes / 10 > record_count) return corrupt("more sizes than records");
  std::vector<std::byte> sizes(bytes);
  HEADRACE_TRY(read_buffer(compression, buffer, sizes));
  return sizes;
}

// `data`: of a chunk, behind its header.
Status decode_simple(std::span<const std::byte> data, std::uint64_t record_count,
                     std::span<std::byte> raw) {
  if (data.empty()) return corrupt("an empty chunk");
  const auto compression = compression_of(data[0]);
  if (!compression) {
    return Status(Code::kUnsupported, fmt::format("riegeli: unknown compression {:#04x}",
                                                  std::to_integer<unsigned>(data[0])));
  }
  WireReader reader(data.subspan(1));
  std::span<const std::byte> sizes_buffer;
  if (!reader.read_bytes(sizes_buffer)) return corrupt("a chunk that is cut off");
  const auto values = data.subspan(static_cast<std::size_t>(reader.position() - data.data()));
  HEADRACE_TRY_ASSIGN(const auto sizes, read_sizes(*compression, sizes_buffer, record_count));
  const std::span<std::byte> records = raw.subspan(record_count * 8);
  WireReader size_reader(sizes);
  std::uint64_t end = 0;
  for (std::uint64_t i = 0; i < record_count; ++i) {
    std::uint64_t size = 0;
    if (!size_reader.read_varint(size) || size > records.size() - end)
      return corrupt("sizes of records that do not fit their chunk");
    end += size;
    store_le(raw.data() + 8 * i, end);
  }
  if (!size_reader.is_done() || end != records.size())
    return corrupt("sizes of records that do not fit their chunk");
  return read_buffer(*compression, values, records);
}

// A chunk's header and its data, block headers taken out.
struct OpenChunk {
  RiegeliChunkHeader header;
  std::vector<std::byte> bytes;
  std::span<const std::byte> data() const {
    return std::span(bytes).subspan(kRiegeliChunkHeaderBytes);
  }
};

Result<OpenChunk> open_chunk(std::span<const std::byte> stored, std::uint64_t offset) {
  OpenChunk chunk;
  std::array<std::byte, kRiegeliChunkHeaderBytes> head;
  if (strip_riegeli_blocks(stored, offset, head) < head.size())
    return corrupt("a chunk that is cut off");
  HEADRACE_TRY_ASSIGN(chunk.header, parse_riegeli_chunk(head));
  if (chunk.header.data_bytes > stored.size()) return corrupt("a chunk that is cut off");
  chunk.bytes.resize(kRiegeliChunkHeaderBytes + chunk.header.data_bytes);
  if (strip_riegeli_blocks(stored, offset, chunk.bytes) < chunk.bytes.size())
    return corrupt("a chunk that is cut off");
  if (highway_hash64(chunk.data(), kHashKey) != chunk.header.data_hash)
    return corrupt("the hash of a chunk's data does not match");
  if (chunk.header.type == RiegeliChunk::kTransposed) {
    return Status(Code::kUnsupported,
                  "riegeli: transposed chunks are not read; write the file with "
                  "'transpose:false' (the default of array_record)");
  }
  if (chunk.header.type != RiegeliChunk::kSimple) return corrupt("a chunk without records");
  return chunk;
}

}  // namespace

std::size_t strip_riegeli_blocks(std::span<const std::byte> stored, std::uint64_t offset,
                                 std::span<std::byte> out) noexcept {
  std::size_t written = 0;
  std::size_t at = 0;
  while (at < stored.size() && written < out.size()) {
    const std::uint64_t in_block = (offset + at) % kRiegeliBlockBytes;
    if (in_block < kRiegeliBlockHeaderBytes) {
      at += static_cast<std::size_t>(kRiegeliBlockHeaderBytes - in_block);
      continue;
    }
    const std::size_t run = std::min({static_cast<std::size_t>(kRiegeliBlockBytes - in_block),
                                      stored.size() - at, out.size() - written});
    std::memcpy(out.data() + written, stored.data() + at, run);
    written += run;
    at += run;
  }
  return written;
}

Result<RiegeliChunkHeader> parse_riegeli_chunk(std::span<const std::byte> bytes) {
  if (bytes.size() < kRiegeliChunkHeaderBytes) return corrupt("a header that is cut off");
  const auto word = [bytes](std::size_t i) { return load_le<std::uint64_t>(bytes.data() + 8 * i); };
  if (highway_hash64(bytes.subspan(kHashBytes, kRiegeliChunkHeaderBytes - kHashBytes), kHashKey) !=
      word(0)) {
    return corrupt("the hash of a chunk's header does not match");
  }
  return RiegeliChunkHeader{.data_bytes = word(1),
                            .data_hash = word(2),
                            .record_count = word(3) >> 8,
                            .decoded_bytes = word(4),
                            .type = static_cast<RiegeliChunk>(word(3) & 0xff)};
}

Status read_simple_chunk(std::span<const std::byte> stored, std::uint64_t offset,
                         std::uint64_t record_count, std::span<std::byte> raw) {
  HEADRACE_TRY_ASSIGN(const OpenChunk chunk, open_chunk(stored, offset));
  if (chunk.header.record_count != record_count || record_count > raw.size() / 8 ||
      chunk.header.decoded_bytes != raw.size() - record_count * 8) {
    return corrupt("a chunk that is not as the file's footer says");
  }
  return decode_simple(chunk.data(), record_count, raw);
}

Result<RiegeliRecords> read_records(std::span<const std::byte> stored, std::uint64_t offset,
                                    std::uint64_t most_bytes) {
  HEADRACE_TRY_ASSIGN(const OpenChunk chunk, open_chunk(stored, offset));
  RiegeliRecords records;
  records.record_count = chunk.header.record_count;
  if (chunk.header.decoded_bytes > most_bytes || records.record_count > most_bytes / 8)
    return Status(Code::kUnsupported, "riegeli: a chunk larger than any footer is");
  records.raw.resize(chunk.header.decoded_bytes + 8 * records.record_count);
  HEADRACE_TRY(decode_simple(chunk.data(), records.record_count, records.raw));
  return records;
}

Result<std::span<const std::byte>> record_of(std::span<const std::byte> raw,
                                             std::uint64_t record_count, std::uint64_t index) {
  if (index >= record_count || record_count > raw.size() / 8)
    return corrupt("no such record in its chunk");
  const auto end_of = [raw](std::uint64_t i) { return load_le<std::uint64_t>(raw.data() + 8 * i); };
  const std::uint64_t begin = index == 0 ? 0 : end_of(index - 1);
  const std::uint64_t end = end_of(index);
  const auto records = raw.subspan(record_count * 8);
  if (begin > end || end > records.size()) return corrupt("no such record in its chunk");
  return records.subspan(begin, end - begin);
}

Result<std::span<const std::byte>> RiegeliRecords::record(std::uint64_t index) const {
  return record_of(raw, record_count, index);
}

bool looks_like_array_record(std::span<const std::byte> head) noexcept {
  // The file signature: a block header, then a chunk of type 's' with nothing in it.
  if (head.size() < kRiegeliBlockHeaderBytes + kRiegeliChunkHeaderBytes) return false;
  auto chunk = parse_riegeli_chunk(head.subspan(kRiegeliBlockHeaderBytes));
  return chunk.has_value() && chunk->type == RiegeliChunk::kSignature;
}

}  // namespace headrace::detail
