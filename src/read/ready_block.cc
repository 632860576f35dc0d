#include "read/ready_block.h"

#include <algorithm>
#include <cstring>

namespace headrace::read {

Status fetch_extents(RangeFetcher& fetcher, std::span<const Extent> extents,
                     std::uint64_t piece_bytes, bool is_fresh, std::span<std::byte> target,
                     std::size_t* failed) {
  struct Piece {
    std::size_t extent = 0;
    std::uint64_t target_offset_bytes = 0;
  };
  std::vector<Piece> pieces;  // By tag.
  for (std::size_t i = 0; i < extents.size(); ++i) {
    const Extent& extent = extents[i];
    for (std::uint64_t at = 0; at < extent.length_bytes; at += piece_bytes) {
      fetcher.start({.key = extent.key,
                     .etag = extent.etag,
                     .offset_bytes = extent.offset_bytes + at,
                     .length_bytes = std::min(piece_bytes, extent.length_bytes - at),
                     .is_fresh = is_fresh,
                     .tag = pieces.size()});
      pieces.push_back({i, extent.target_offset_bytes + at});
    }
  }
  while (fetcher.pending() > 0) {
    std::uint64_t tag = 0;
    auto data = fetcher.next(&tag);
    if (!data && failed != nullptr) *failed = pieces[tag].extent;
    if (!data) return data.error().clone();
    const auto into = target.subspan(pieces[data->tag].target_offset_bytes, data->length_bytes);
    std::memcpy(into.data(), data->bytes().data(), into.size());
  }
  return {};
}

Status ExtentReader::read(std::span<const Extent> extents, bool is_fresh,
                          std::span<std::byte> target, std::size_t* failed) {
  if (!fetcher_) {
    HEADRACE_TRY_ASSIGN(fetcher_, RangeFetcher::create(store_, pool_, {.call = call_}));
  }
  Status status = fetch_extents(*fetcher_, extents, piece_bytes_, is_fresh, target, failed);
  // Reads may be under way that nobody will take.
  if (!status.ok()) fetcher_.reset();
  return status;
}

Result<std::shared_ptr<const UnpackedBlock>> make_ready(const Dataset& dataset, std::uint32_t block,
                                                        std::span<const std::byte> stored,
                                                        std::span<std::byte> raw,
                                                        SlabArena* arena) {
  if (dataset.is_unpacked(block)) return dataset.unpack(block, stored, *arena);
  HEADRACE_TRY(dataset.decompress(block, stored, raw.first(dataset.block(block).raw_bytes)));
  return std::shared_ptr<const UnpackedBlock>();
}

BlockBytes ready_bytes(const Dataset& dataset, std::uint32_t block, std::span<const std::byte> raw,
                       const UnpackedBlock* unpacked) {
  const Block info = dataset.block(block);
  BlockBytes bytes{.block = block, .begin = 0, .end = info.sample_count, .bytes = {}};
  bytes.unpacked = unpacked;
  if (unpacked == nullptr) bytes.bytes = raw.first(info.raw_bytes);
  return bytes;
}

}  // namespace headrace::read
