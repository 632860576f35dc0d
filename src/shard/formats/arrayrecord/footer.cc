#include "shard/formats/arrayrecord/footer.h"

#include <fmt/format.h>

#include "shard/formats/arrayrecord/riegeli.h"
#include "wire/message.h"

namespace headrace::detail {
namespace {

constexpr std::uint64_t kPostscriptMagic = 0x71930e704fdae05e;
constexpr std::uint64_t kVersion = 1;
// Keeps sums of sizes from overflowing.
constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 56;

Status corrupt(std::string_view what) {
  return Status(Code::kCorrupt, fmt::format("arrayrecord: {}", what));
}

// The varint fields 1..N of a message; others are passed over.
template <std::size_t N>
bool read_numbers(std::span<const std::byte> message, std::array<std::uint64_t, N>& out) {
  WireReader reader(message);
  while (!reader.is_done()) {
    std::uint32_t field = 0;
    std::uint32_t type = 0;
    if (!reader.read_tag(field, type)) return false;
    const bool is_wanted = field <= N && type == WireReader::kVarint;
    if (is_wanted ? !reader.read_varint(out[field - 1]) : !reader.skip(field, type)) return false;
  }
  return true;
}

// Field 1 of the footer's first record: version, chunks, records.
bool read_metadata(std::span<const std::byte> message, std::array<std::uint64_t, 3>& out) {
  WireReader reader(message);
  while (!reader.is_done()) {
    std::uint32_t field = 0;
    std::uint32_t type = 0;
    if (!reader.read_tag(field, type)) return false;
    if (field != 1 || type != WireReader::kDelimited) {
      if (!reader.skip(field, type)) return false;
      continue;
    }
    std::span<const std::byte> inner;
    if (!reader.read_bytes(inner) || !read_numbers(inner, out)) return false;
  }
  return true;
}

}  // namespace

Result<std::uint64_t> parse_postscript(std::span<const std::byte> block, std::uint64_t size_bytes) {
  const auto foreign = [] {
    return Status(Code::kUnsupported,
                  "arrayrecord: a Riegeli file that does not end with ArrayRecord's postscript; "
                  "it was not closed, or another writer made it");
  };
  if (size_bytes % kRiegeliBlockBytes != 0 || size_bytes < 2 * kRiegeliBlockBytes ||
      block.size() != kRiegeliBlockBytes) {
    return foreign();
  }
  auto records = read_records(block, size_bytes - kRiegeliBlockBytes, kRiegeliBlockBytes);
  if (!records) return foreign().annotate(records.error().message());
  HEADRACE_TRY_ASSIGN(const auto record, records->record(0));
  std::array<std::uint64_t, 2> numbers{};
  if (!read_numbers(record, numbers) || numbers[1] != kPostscriptMagic) return foreign();
  if (numbers[0] < kRiegeliBlockHeaderBytes || numbers[0] >= size_bytes - kRiegeliBlockBytes)
    return corrupt("the footer lies outside the file");
  return numbers[0];
}

Result<ArrayRecordFooter> parse_footer(std::span<const std::byte> stored, std::uint64_t offset) {
  HEADRACE_TRY_ASSIGN(const RiegeliRecords records, read_records(stored, offset, kMostFooterBytes));
  HEADRACE_TRY_ASSIGN(const auto first, records.record(0));
  std::array<std::uint64_t, 3> metadata{};
  if (!read_metadata(first, metadata)) return corrupt("a broken footer");
  if (metadata[0] != kVersion) {
    return Status(Code::kUnsupported,
                  fmt::format("arrayrecord: version {}, only 1 is read", metadata[0]));
  }
  if (metadata[1] != records.record_count - 1) return corrupt("a footer without all its chunks");
  ArrayRecordFooter footer;
  footer.frames.reserve(metadata[1]);
  for (std::uint64_t i = 1; i < records.record_count; ++i) {
    HEADRACE_TRY_ASSIGN(const auto record, records.record(i));
    std::array<std::uint64_t, 3> chunk{};
    if (!read_numbers(record, chunk)) return corrupt("a broken footer");
    const auto [begin, decoded_bytes, count] = chunk;
    const std::uint64_t before = footer.frames.empty() ? 0 : footer.frames.back().stored_begin;
    if (begin <= before || begin >= offset || count == 0 || count > UINT32_MAX ||
        decoded_bytes > kMostBytes || footer.raw_bytes > kMostBytes) {
      return corrupt("chunks that are not where a file has them");
    }
    if (!footer.frames.empty()) footer.frames.back().stored_bytes = begin - before;
    footer.frames.push_back({.stored_begin = begin,
                             .stored_bytes = offset - begin,
                             .raw_begin = footer.raw_bytes,
                             .raw_bytes = decoded_bytes + 8 * count,
                             .first_sample = footer.record_count});
    footer.raw_bytes += decoded_bytes + 8 * count;
    footer.record_count += count;
  }
  if (footer.record_count != metadata[2]) return corrupt("a footer without all its records");
  return footer;
}

}  // namespace headrace::detail
