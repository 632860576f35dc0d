#include <fmt/format.h>

#include <algorithm>

#include "shard/arrayrecord/footer.h"
#include "shard/arrayrecord/riegeli.h"
#include "shard/build.h"
#include "shard/range_fetcher.h"

namespace headrace::detail {
namespace {

constexpr std::uint64_t kReadBytes = std::uint64_t{4} << 20;

// Reads footers file after file: three small reads each.
class ArrayRecordBuilder {
 public:
  ArrayRecordBuilder(const BuildContext& context, RangeFetcher& fetcher)
      : context_(context), fetcher_(fetcher), read_bytes_(context.read_bytes(kReadBytes)) {}

  Result<std::string> run(const std::vector<ObjectInfo>& objects) {
    for (std::size_t i = 0; i < objects.size(); ++i) {
      if (Status status = add(objects[i]); !status.ok())
        return std::move(status).annotate(context_.store.object_url(objects[i].key));
      context_.report(i + 1, objects.size());
    }
    IndexSource source;
    if (!objects.empty()) source = {objects[0].key, objects[0].etag, objects[0].size_bytes};
    Column record{.name = "record", .encoding = "bytes", .dtype = {}, .shape = {}};
    return writer_.finish({.format = Format::kArrayRecord,
                           .columns = {std::move(record)},
                           .source = std::move(source),
                           .block_bytes = context_.options.block_bytes});
  }

 private:
  Status add(const ObjectInfo& object) {
    const std::uint64_t size = object.size_bytes;
    const std::uint64_t last = size < kRiegeliBlockBytes ? 0 : size - kRiegeliBlockBytes;
    HEADRACE_TRY_ASSIGN(const auto block, read(object, last, size));
    HEADRACE_TRY_ASSIGN(const std::uint64_t offset, parse_postscript(block, size));
    HEADRACE_TRY_ASSIGN(const auto stored, read_footer(object, offset, last));
    HEADRACE_TRY_ASSIGN(const ArrayRecordFooter footer, parse_footer(stored, offset));
    if (footer.record_count > kMostShardSamples) {
      return Status(Code::kUnsupported,
                    fmt::format("arrayrecord: {} records in one file; up to {} are read, split it",
                                footer.record_count, kMostShardSamples));
    }
    if (!footer.frames.empty()) HEADRACE_TRY(check_first(object, footer.frames[0]));
    ShardRecord shard;
    shard.sample_count = footer.record_count;
    shard.stored_bytes = size;
    shard.raw_bytes = footer.raw_bytes;
    shard.first_object = writer_.object_count();
    shard.has_bounds = false;
    shard.compression = Compression::kOwn;
    shard.first_frame = writer_.add_frames(footer.frames);
    shard.frame_count = static_cast<std::uint32_t>(footer.frames.size());
    writer_.add_object(object.key, object.etag, size);
    writer_.add_shard(shard);
    return Status();
  }

  // The chunk at `begin`, and perhaps a little more. Its header says how long it is: whatever a
  // postscript says, no more of the file than a footer is read.
  Result<std::vector<std::byte>> read_footer(const ObjectInfo& object, std::uint64_t begin,
                                             std::uint64_t end) {
    HEADRACE_TRY_ASSIGN(auto stored, read(object, begin, std::min(end, begin + read_bytes_)));
    std::array<std::byte, kRiegeliChunkHeaderBytes> head{};
    strip_riegeli_blocks(stored, begin, head);
    HEADRACE_TRY_ASSIGN(const RiegeliChunkHeader header, parse_riegeli_chunk(head));
    if (header.data_bytes > kMostFooterBytes) {
      return Status(Code::kUnsupported,
                    fmt::format("arrayrecord: a footer of {} bytes; up to {} are read",
                                header.data_bytes, kMostFooterBytes));
    }
    const std::uint64_t chunk_bytes = kRiegeliChunkHeaderBytes + header.data_bytes;
    const std::uint64_t block_count =
        chunk_bytes / (kRiegeliBlockBytes - kRiegeliBlockHeaderBytes) + 2;
    end = std::min(end, begin + chunk_bytes + block_count * kRiegeliBlockHeaderBytes);
    HEADRACE_TRY_ASSIGN(const auto rest, read(object, begin + stored.size(), end));
    stored.insert(stored.end(), rest.begin(), rest.end());
    return stored;
  }

  // Transposed chunks are said now, not in training.
  Status check_first(const ObjectInfo& object, const Frame& frame) {
    const std::uint64_t length = kRiegeliChunkHeaderBytes + 2 * kRiegeliBlockHeaderBytes;
    const std::uint64_t end = frame.stored_begin + std::min(length, frame.stored_bytes);
    HEADRACE_TRY_ASSIGN(const auto stored, read(object, frame.stored_begin, end));
    std::array<std::byte, kRiegeliChunkHeaderBytes> head{};
    strip_riegeli_blocks(stored, frame.stored_begin, head);
    HEADRACE_TRY_ASSIGN(const RiegeliChunkHeader header, parse_riegeli_chunk(head));
    if (header.type != RiegeliChunk::kTransposed) return Status();
    return Status(Code::kUnsupported,
                  "arrayrecord: transposed chunks are not read; write the file with "
                  "'transpose:false' (the default of array_record)");
  }

  Result<std::vector<std::byte>> read(const ObjectInfo& object, std::uint64_t begin,
                                      std::uint64_t end) {
    std::vector<std::byte> out;
    while (begin + out.size() < end) {
      fetcher_.start({.key = object.key,
                      .etag = object.etag,
                      .offset_bytes = begin + out.size(),
                      .length_bytes = std::min(read_bytes_, end - begin - out.size())});
      HEADRACE_TRY_ASSIGN(const RangeData data, fetcher_.next());
      out.insert(out.end(), data.bytes().begin(), data.bytes().end());
    }
    return out;
  }

  const BuildContext& context_;
  RangeFetcher& fetcher_;
  const std::uint64_t read_bytes_;
  IndexWriter writer_;
};

}  // namespace

Result<std::string> build_array_record_index(const BuildContext& context,
                                             const std::vector<ObjectInfo>& objects) {
  HEADRACE_TRY_ASSIGN(const auto fetcher,
                      RangeFetcher::create(context.store, context.pool, context.call));
  return ArrayRecordBuilder(context, *fetcher).run(objects);
}

}  // namespace headrace::detail
