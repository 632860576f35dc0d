#include "shard/formats/litdata/chunk_reader.h"

#include <fmt/format.h>

#include <algorithm>

namespace headrace::detail {
namespace {

// Small enough that a few dozen fit any sensible pool.
constexpr std::uint64_t kPieceBytes = std::uint64_t{1} << 20;

}  // namespace

Result<ChunkReader> ChunkReader::create(const BuildContext& context,
                                        const std::vector<std::string_view>& keys) {
  HEADRACE_TRY_ASSIGN(auto fetcher,
                      RangeFetcher::create(context.store, context.pool, {.call = context.call}));
  return ChunkReader(context, keys, std::move(fetcher));
}

ChunkReader::ChunkReader(const BuildContext& context, const std::vector<std::string_view>& keys,
                         std::unique_ptr<RangeFetcher> fetcher)
    : keys_(&keys),
      fetcher_(std::move(fetcher)),
      ranges_(keys.size()),
      piece_bytes_(context.read_bytes(kPieceBytes)) {}

void ChunkReader::start(std::size_t chunk, std::uint64_t begin, std::uint64_t length_bytes) {
  Range& range = ranges_[chunk];
  range.bytes.clear();
  range.begin = begin;
  range.length_bytes = length_bytes;
  request(chunk);
}

void ChunkReader::request(std::size_t chunk) {
  const Range& range = ranges_[chunk];
  fetcher_->start({.key = (*keys_)[chunk],
                   .etag = range.etag,
                   .offset_bytes = range.begin + range.bytes.size(),
                   .length_bytes = std::min(piece_bytes_, range.length_bytes - range.bytes.size()),
                   .allow_short = true,
                   .tag = chunk});
}

Result<std::size_t> ChunkReader::next() {
  while (true) {
    std::uint64_t tag = 0;
    auto next = fetcher_->next(&tag);
    if (!next && next.error().code() != Code::kNotFound) return std::move(next).error();
    if (!next) {
      ranges_[tag].is_missing = true;
      return static_cast<std::size_t>(tag);
    }
    const RangeData data = *std::move(next);
    Range& range = ranges_[data.tag];
    if (range.etag.empty()) range.etag = data.etag;
    if (data.object_size_bytes != 0) range.object_bytes = data.object_size_bytes;
    const auto piece = data.bytes();
    const std::uint64_t wanted = std::min(piece_bytes_, range.length_bytes - range.bytes.size());
    range.bytes.append(reinterpret_cast<const char*>(piece.data()), piece.size());
    if (piece.size() != wanted) return static_cast<std::size_t>(data.tag);
    if (range.bytes.size() == range.length_bytes) return static_cast<std::size_t>(data.tag);
    request(data.tag);
  }
}

Status ChunkReader::check(std::size_t chunk) const {
  const Range& range = ranges_[chunk];
  if (range.is_missing) return Status(Code::kNotFound, "is not there, index.json names it");
  if (range.bytes.size() == range.length_bytes) return Status();
  return Status(Code::kCorrupt,
                fmt::format("ends after {} bytes, {} are needed", range.begin + range.bytes.size(),
                            range.begin + range.length_bytes));
}

}  // namespace headrace::detail
