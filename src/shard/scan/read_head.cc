#include "shard/scan/read_head.h"

#include <algorithm>

#include "shard/range_fetcher.h"
#include "shard/scan/scan_files.h"
#include "shard/stream_inflater.h"

namespace headrace::detail {
namespace {

// bzip2 yields nothing before its first block is there, up to 900 KB unpacked.
constexpr std::uint64_t kReadBytes = std::uint64_t{64} << 10;

Result<std::vector<std::byte>> inflate_head(Compression compression,
                                            std::span<const std::byte> bytes,
                                            std::size_t most_bytes) {
  HEADRACE_TRY_ASSIGN(const auto inflater, StreamInflater::create(compression));
  std::vector<std::byte> head(most_bytes);
  HEADRACE_TRY_ASSIGN(const StreamInflater::Step step, inflater->step(bytes, head));
  head.resize(step.produced_bytes);
  return head;
}

}  // namespace

Result<std::vector<std::byte>> read_head(const BuildContext& context, const ObjectInfo& object,
                                         std::size_t most_bytes) {
  std::vector<std::byte> head;
  if (object.size_bytes == 0) return head;
  HEADRACE_TRY_ASSIGN(const auto fetcher,
                      RangeFetcher::create(context.store, context.pool, context.call));
  fetcher->start({.key = object.key,
                  .etag = object.etag,
                  .length_bytes = std::min(object.size_bytes, context.read_bytes(kReadBytes))});
  HEADRACE_TRY_ASSIGN(const RangeData data, fetcher->next());
  const auto bytes = data.bytes();
  const Compression compression = sniff_compression(bytes);
  if (compression != Compression::kNone) {
    auto inflated = inflate_head(compression, bytes, most_bytes);
    if (!inflated)
      return std::move(inflated).error().annotate(context.store.object_url(object.key));
    return inflated;
  }
  // Zlib has no mark of its own; only TFRecord files are stored so, and those can be told.
  if (looks_like_zlib(bytes)) {
    auto inflated = inflate_head(Compression::kZlib, bytes, most_bytes);
    if (inflated && looks_like_tfrecord(*inflated)) return inflated;
  }
  const std::size_t length = std::min(bytes.size(), most_bytes);
  head.assign(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(length));
  return head;
}

}  // namespace headrace::detail
