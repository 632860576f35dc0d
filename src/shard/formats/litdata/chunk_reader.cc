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
    : context_(&context),
      keys_(&keys),
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
    HEADRACE_TRY_ASSIGN(const RangeData data, fetcher_->next());
    Range& range = ranges_[data.tag];
    if (range.etag.empty()) range.etag = data.etag;
    if (data.object_size_bytes != 0) range.object_bytes = data.object_size_bytes;
    const auto piece = data.bytes();
    const std::uint64_t wanted = std::min(piece_bytes_, range.length_bytes - range.bytes.size());
    range.bytes.append(reinterpret_cast<const char*>(piece.data()), piece.size());
    if (piece.size() != wanted) {
      return Status(Code::kCorrupt, fmt::format("{}: ends after {} bytes, {} are needed",
                                                context_->store.object_url((*keys_)[data.tag]),
                                                range.begin + range.bytes.size(),
                                                range.begin + range.length_bytes));
    }
    if (range.bytes.size() == range.length_bytes) return static_cast<std::size_t>(data.tag);
    request(data.tag);
  }
}

}  // namespace headrace::detail
