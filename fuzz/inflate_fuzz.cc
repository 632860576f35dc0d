// The first byte chooses a compression: inflated whole, and as a stream in pieces; both agree.
#include <cstring>
#include <vector>

#include "require.h"
#include "shard/codec/inflate.h"
#include "shard/codec/stream_inflater.h"

namespace {

using headrace::detail::Compression;
using headrace::detail::StreamInflater;

constexpr std::size_t kMostBytes = 1 << 16;

// Bytes that come out of the stream, at most kMostBytes; `is_whole` when it ended as it should.
std::vector<std::byte> stream(Compression compression, std::span<const std::byte> stored,
                              bool& is_whole) {
  is_whole = false;
  std::vector<std::byte> out(kMostBytes);
  auto inflater = StreamInflater::create(compression);
  if (!inflater) return {};
  std::size_t in = 0, made = 0;
  while (made < out.size()) {
    const auto piece = stored.subspan(in, std::min<std::size_t>(stored.size() - in, 100));
    const auto room = std::span(out).subspan(made, std::min<std::size_t>(out.size() - made, 777));
    auto step = (*inflater)->step(piece, room);
    if (!step) break;
    require(step->consumed_bytes <= piece.size() && step->produced_bytes <= room.size());
    require(step->consumed_bytes == piece.size() || step->produced_bytes == room.size());
    in += step->consumed_bytes;
    made += step->produced_bytes;
    if (in == stored.size() && step->produced_bytes < room.size()) {
      is_whole = (*inflater)->is_complete();
      break;
    }
  }
  out.resize(made);
  return out;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 1) return 0;
  const auto compression = static_cast<Compression>(1 + data[0] % 7);
  const auto stored = std::as_bytes(std::span(data, size)).subspan(1);
  bool is_whole = false;
  const auto streamed = stream(compression, stored, is_whole);
  for (const std::size_t expected : {streamed.size(), streamed.size() + 1, std::size_t{100}}) {
    std::vector<std::byte> raw(expected);
    const bool is_ok = headrace::detail::inflate(compression, stored, raw).ok();
    if (is_whole && is_ok) require(expected == streamed.size());
    // libzstd 1.5.4 in one call refuses some frames, which no encoder writes, that it takes in
    // pieces.
    const bool may_refuse = compression == Compression::kZstd;
    if (is_whole && !is_ok) require(may_refuse || expected != streamed.size());
    if (is_ok && is_whole && !raw.empty())
      require(std::memcmp(raw.data(), streamed.data(), raw.size()) == 0);
  }
  return 0;
}
