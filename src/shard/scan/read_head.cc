#include "shard/scan/read_head.h"

#include <fmt/format.h>

#include <algorithm>

#include "headrace/range_fetcher.h"
#include "shard/codec/stream_inflater.h"
#include "shard/dataset/format_driver.h"
#include "shard/scan/scan_files.h"

namespace headrace::detail {
namespace {

constexpr std::uint64_t kReadBytes = std::uint64_t{64} << 10;
// Compressed data yields nothing before its first block is there. The largest are bzip2's: 900,000
// bytes, and 1 % more where they do not shrink (https://sourceware.org/bzip2/manual/manual.html).
constexpr std::uint64_t kMostReadBytes = std::uint64_t{1} << 20;

class HeadReader {
 public:
  HeadReader(const BuildContext& context, const ObjectInfo& object, RangeFetcher& fetcher)
      : context_(context), object_(object), fetcher_(fetcher) {}

  /// The bytes behind those read before, about 64 KiB.
  Result<RangeData> read() {
    const std::uint64_t length =
        std::min(object_.size_bytes - offset_, context_.read_bytes(kReadBytes));
    fetcher_.start({.key = object_.key,
                    .etag = object_.etag,
                    .offset_bytes = offset_,
                    .length_bytes = length});
    offset_ += length;
    return fetcher_.next();
  }

  /// Inflates `bytes` and what comes behind them, until `most_bytes` have come out.
  Result<std::vector<std::byte>> inflate(Compression compression, std::span<const std::byte> bytes,
                                         std::size_t most_bytes) {
    HEADRACE_TRY_ASSIGN(const auto inflater, StreamInflater::create(compression));
    std::vector<std::byte> head(most_bytes);
    std::size_t produced = 0;
    RangeData data;
    while (true) {
      HEADRACE_TRY_ASSIGN(const StreamInflater::Step step,
                          inflater->step(bytes, std::span(head).subspan(produced)));
      produced += step.produced_bytes;
      if (produced == most_bytes || offset_ == object_.size_bytes || offset_ >= kMostReadBytes)
        break;
      HEADRACE_TRY_ASSIGN(data, read());
      bytes = data.bytes();
    }
    // What nothing is known of must not be taken for something else.
    if (produced == 0 && !inflater->is_complete()) {
      return Status(Code::kUnsupported,
                    fmt::format("{} of its {} bytes inflate to nothing: it is damaged, or must be "
                                "unpacked first",
                                offset_, object_.size_bytes));
    }
    head.resize(produced);
    return head;
  }

 private:
  const BuildContext& context_;
  const ObjectInfo& object_;
  RangeFetcher& fetcher_;
  std::uint64_t offset_ = 0;
};

bool is_known_in_zlib(std::span<const std::byte> head) {
  const auto formats = all_formats();
  return std::any_of(formats.begin(), formats.end(), [head](const FormatDriver* driver) {
    return driver->may_be_zlib && driver->looks_like(head);
  });
}

}  // namespace

Result<std::vector<std::byte>> read_head(const BuildContext& context, const ObjectInfo& object,
                                         std::size_t most_bytes) {
  std::vector<std::byte> head;
  if (object.size_bytes == 0) return head;
  HEADRACE_TRY_ASSIGN(const auto fetcher,
                      RangeFetcher::create(context.store, context.pool, {.call = context.call}));
  HeadReader reader(context, object, *fetcher);
  HEADRACE_TRY_ASSIGN(const RangeData data, reader.read());
  const auto bytes = data.bytes();
  const Compression compression = sniff_compression(bytes);
  if (compression != Compression::kNone) {
    auto inflated = reader.inflate(compression, bytes, most_bytes);
    if (!inflated)
      return std::move(inflated).error().annotate(context.store.object_url(object.key));
    return inflated;
  }
  // Zlib has no mark of its own; files of some formats are stored so, and those can be told.
  if (looks_like_zlib(bytes)) {
    auto inflated = reader.inflate(Compression::kZlib, bytes, most_bytes);
    if (inflated && is_known_in_zlib(*inflated)) return inflated;
  }
  const std::size_t length = std::min(bytes.size(), most_bytes);
  head.assign(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(length));
  return head;
}

}  // namespace headrace::detail
