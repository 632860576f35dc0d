// Any bytes as the data of a chunk with right hashes, as a footer, or as a file.
#include <array>
#include <vector>

#include "base/endian.h"
#include "require.h"
#include "shard/formats/arrayrecord/array_record_driver.h"
#include "shard/formats/arrayrecord/footer.h"
#include "shard/formats/arrayrecord/highway_hash.h"
#include "shard/formats/arrayrecord/riegeli.h"

namespace {

namespace detail = headrace::detail;

constexpr std::array<std::uint64_t, 4> kKey{0x2f696c6567656952, 0x0a7364726f636572,
                                            0x2f696c6567656952, 0x0a7364726f636572};
constexpr std::uint64_t kOffset = 64;

// A chunk at kOffset of a file; data of less than a block.
std::vector<std::byte> make_chunk(std::span<const std::byte> data, std::uint64_t record_count,
                                  std::uint64_t decoded_bytes) {
  std::vector<std::byte> chunk(detail::kRiegeliChunkHeaderBytes);
  const auto put = [&chunk](std::size_t i, std::uint64_t value) {
    headrace::store_le(chunk.data() + 8 * i, value);
  };
  put(1, data.size());
  put(2, detail::highway_hash64(data, kKey));
  put(3, record_count << 8 | 'r');
  put(4, decoded_bytes);
  put(0, detail::highway_hash64(std::span(chunk).subspan(8), kKey));
  chunk.insert(chunk.end(), data.begin(), data.end());
  return chunk;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 4 || size > 60'000) return 0;
  const auto bytes = std::as_bytes(std::span(data, size));
  (void)detail::looks_like_array_record(bytes);
  (void)detail::parse_postscript(bytes, 2 * detail::kRiegeliBlockBytes);
  const std::uint64_t record_count = data[0];
  const std::uint64_t decoded_bytes = data[1] + 256U * (data[2] % 64);
  const auto chunk = make_chunk(bytes.subspan(3), record_count, decoded_bytes);
  std::vector<std::byte> raw(8 * record_count + decoded_bytes);
  if (detail::read_simple_chunk(chunk, kOffset, record_count, raw).ok()) {
    for (std::uint64_t i = 0; i < record_count; ++i)
      require(detail::record_of(raw, record_count, i).has_value());
  }
  auto footer = detail::parse_footer(chunk, kOffset + 100'000);
  if (footer) {
    std::uint64_t end = 0;
    for (const detail::Frame& frame : footer->frames) {
      require(frame.stored_begin >= end && frame.stored_bytes > 0);
      end = frame.stored_begin + frame.stored_bytes;
    }
    require(end <= kOffset + 100'000);
  }
  return 0;
}
