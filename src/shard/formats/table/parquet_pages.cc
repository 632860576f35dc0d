// Only headers are read here, and dictionaries: how much memory the unpacker will need depends on
// the largest page and on the longest value of a dictionary, which every row may repeat. What
// cannot be read ends the look, not the reading: the unpacker says what is wrong with a page.
#include "shard/formats/table/parquet_pages.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "base/endian.h"
#include "shard/codec/inflate.h"
#include "shard/formats/table/thrift.h"

namespace headrace::detail {
namespace {

constexpr std::int32_t kByteArray = 6;       // Type.BYTE_ARRAY
constexpr std::int64_t kDictionaryPage = 2;  // PageType.DICTIONARY_PAGE
/// Larger dictionaries are not looked into: their size bounds their values.
constexpr std::uint64_t kMostDictionaryBytes = std::uint64_t{16} << 20;

struct PageHeader {
  std::int64_t type = -1;
  std::int64_t inflated_bytes = -1;
  std::int64_t stored_bytes = -1;
  std::size_t header_bytes = 0;
};

std::optional<PageHeader> parse_page_header(std::span<const std::byte> bytes) {
  ThriftReader reader(bytes);
  PageHeader header;
  std::int32_t last = 0;
  ThriftReader::Field field;
  while (reader.next_field(last, field)) {
    if (field.type == ThriftType::kI32 && field.id >= 1 && field.id <= 3) {
      const std::int64_t value = reader.integer();
      if (field.id == 1) header.type = value;
      if (field.id == 2) header.inflated_bytes = value;
      if (field.id == 3) header.stored_bytes = value;
    } else {
      reader.skip(field.type);
    }
  }
  header.header_bytes = reader.position();
  if (reader.failed() || header.inflated_bytes < 0 || header.stored_bytes < 0) return std::nullopt;
  return header;
}

/// CompressionCodec of those that we inflate.
std::optional<Compression> compression_of(std::uint8_t codec) {
  switch (codec) {
    case 0:
      return Compression::kNone;
    case 1:
      return Compression::kSnappy;
    case 2:
      return Compression::kGzip;
    case 4:
      return Compression::kBrotli;
    case 6:
      return Compression::kZstd;
    default:
      return std::nullopt;
  }
}

/// The longest of PLAIN byte arrays: u32 length and bytes, one after the other.
std::uint64_t longest_of(std::span<const std::byte> values) {
  std::uint64_t longest = 0;
  while (values.size() >= 4) {
    const std::uint64_t length = load_le<std::uint32_t>(values.data());
    if (length > values.size() - 4) break;
    longest = std::max(longest, length);
    values = values.subspan(4 + length);
  }
  return longest;
}

std::uint64_t longest_value(std::span<const std::byte> page, std::uint64_t inflated_bytes,
                            std::uint8_t codec) {
  const auto compression = compression_of(codec);
  if (!compression || inflated_bytes > kMostDictionaryBytes) return inflated_bytes;
  if (*compression == Compression::kNone) return longest_of(page);
  std::vector<std::byte> raw(inflated_bytes);
  if (!inflate(*compression, page, raw).ok()) return inflated_bytes;
  return longest_of(raw);
}

}  // namespace

ParquetPages look_at_pages(std::span<const std::byte> chunk, const ParquetLeaf& leaf,
                           std::uint8_t codec) {
  ParquetPages pages;
  while (!chunk.empty()) {
    const auto header = parse_page_header(chunk);
    if (!header) break;
    chunk = chunk.subspan(header->header_bytes);
    const auto stored_bytes = static_cast<std::uint64_t>(header->stored_bytes);
    const auto inflated_bytes = static_cast<std::uint64_t>(header->inflated_bytes);
    if (stored_bytes > chunk.size()) break;
    if (header->type == kDictionaryPage) {
      pages.dictionary_bytes = std::max(pages.dictionary_bytes, inflated_bytes);
      if (leaf.physical_type == kByteArray) {
        pages.longest_value_bytes =
            std::max(pages.longest_value_bytes,
                     longest_value(chunk.first(stored_bytes), inflated_bytes, codec));
      }
    } else {
      pages.largest_bytes = std::max(pages.largest_bytes, inflated_bytes);
    }
    chunk = chunk.subspan(stored_bytes);
  }
  return pages;
}

}  // namespace headrace::detail
