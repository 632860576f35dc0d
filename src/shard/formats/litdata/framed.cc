// The tables decide what is read and how much memory is taken, so they are checked as a whole
// before any of them is used: items ascend from 0, frames follow one another in items and in
// bytes, each inflates to exactly its items, and the last one ends with the chunk.
#include "shard/formats/litdata/framed.h"

#include <fmt/format.h>
#include <zstd.h>

#include <cstring>

#include "base/endian.h"

namespace headrace::detail {
namespace {

constexpr std::string_view kFramedMagic{"LDFZ01\0\0", 8};
constexpr std::string_view kArrowMagic{"LDARW01\0", 8};

bool begins_with(std::span<const std::byte> bytes, std::string_view magic) {
  return bytes.size() >= magic.size() && std::memcmp(bytes.data(), magic.data(), magic.size()) == 0;
}

Status corrupt(std::string_view what) { return Status(Code::kCorrupt, std::string(what)); }

Result<std::vector<std::uint64_t>> read_offsets(std::span<const std::byte> tables,
                                                std::uint64_t item_count) {
  std::vector<std::uint64_t> offsets(item_count + 1);
  for (std::size_t i = 0; i <= item_count; ++i) {
    offsets[i] = load_le<std::uint32_t>(tables.data() + kFramedHeadBytes + 4 * i);
    if (i == 0 ? offsets[0] != 0 : offsets[i] < offsets[i - 1])
      return corrupt(fmt::format("offset {} of its items does not ascend from 0", i));
  }
  return offsets;
}

}  // namespace

Result<FramedHead> parse_framed_head(std::span<const std::byte> head) {
  if (head.size() < kFramedHeadBytes || !begins_with(head, kFramedMagic))
    return corrupt("does not begin with LDFZ01, though index.json says that it is framed");
  const unsigned version = load_le<std::uint16_t>(head.data() + 8);
  if (version != 1) {
    return Status(Code::kUnsupported,
                  fmt::format("framed chunk of version {}, only 1 is read", version));
  }
  const FramedHead out{load_le<std::uint32_t>(head.data() + 12),
                       load_le<std::uint32_t>(head.data() + 20)};
  if (out.item_count == 0 || out.frame_count == 0 || out.frame_count > out.item_count) {
    return corrupt(fmt::format("{} items cannot be in {} frames", out.item_count, out.frame_count));
  }
  return out;
}

Result<FramedTables> parse_framed_tables(std::span<const std::byte> tables,
                                         std::uint64_t chunk_bytes) {
  HEADRACE_TRY_ASSIGN(const FramedHead head, parse_framed_head(tables));
  if (tables.size() < head.table_bytes()) return corrupt("ends inside its table of frames");
  FramedTables out;
  HEADRACE_TRY_ASSIGN(out.offsets, read_offsets(tables, head.item_count));
  const std::byte* record = tables.data() + kFramedHeadBytes + 4 * (head.item_count + 1);
  std::uint64_t next_item = 0;
  std::uint64_t next_byte = head.table_bytes();
  for (std::uint64_t f = 0; f < head.frame_count; ++f, record += kFrameRecordBytes) {
    Frame frame;
    frame.first_sample = load_le<std::uint32_t>(record);
    const std::uint64_t count = load_le<std::uint32_t>(record + 4);
    frame.stored_begin = load_le<std::uint64_t>(record + 8);
    frame.stored_bytes = load_le<std::uint32_t>(record + 16);
    frame.raw_bytes = load_le<std::uint32_t>(record + 20);
    // The writer lays frames and items out without holes; anything else is damage.
    if (frame.first_sample != next_item || count == 0 || count > head.item_count - next_item ||
        frame.stored_begin != next_byte || frame.stored_bytes > chunk_bytes ||
        next_byte > chunk_bytes - frame.stored_bytes) {
      return corrupt(fmt::format("frame {} does not follow the one before it", f));
    }
    next_item += count;
    next_byte += frame.stored_bytes;
    frame.raw_begin = out.offsets[frame.first_sample];
    if (frame.raw_begin + frame.raw_bytes != out.offsets[next_item])
      return corrupt(fmt::format("frame {} does not have the size of its items", f));
    out.frames.push_back(frame);
  }
  if (next_item != head.item_count || next_byte != chunk_bytes)
    return corrupt("its frames do not end with its items and its bytes");
  return out;
}

std::optional<std::uint64_t> zstd_content_bytes(std::span<const std::byte> frame_head) {
  const auto size = ZSTD_getFrameContentSize(frame_head.data(), frame_head.size());
  if (size == ZSTD_CONTENTSIZE_ERROR || size == ZSTD_CONTENTSIZE_UNKNOWN) return std::nullopt;
  return size;
}

std::optional<ArrowSpan> parse_arrow_footer(std::span<const std::byte> footer,
                                            std::uint64_t chunk_bytes) {
  if (footer.size() != kArrowFooterBytes || !begins_with(footer.subspan(4), kArrowMagic))
    return std::nullopt;
  const std::uint64_t length = load_le<std::uint32_t>(footer.data());
  if (length == 0 || chunk_bytes < kArrowFooterBytes || length > chunk_bytes - kArrowFooterBytes)
    return std::nullopt;
  return ArrowSpan{chunk_bytes - kArrowFooterBytes - length, length};
}

}  // namespace headrace::detail
