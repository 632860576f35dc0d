// A file is read from its end: the last block (64 KiB) holds the postscript, which says where the
// footer is; the footer has the chunks; and the header of the first chunk says whether they are
// transposed, which is not read. These are three rounds for 64 files at a time, whatever their
// sizes.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "headrace/range_fetcher.h"
#include "shard/formats/arrayrecord/array_record_driver.h"
#include "shard/formats/arrayrecord/footer.h"
#include "shard/formats/arrayrecord/riegeli.h"

namespace headrace::detail {
namespace {

constexpr std::uint64_t kReadBytes = std::uint64_t{4} << 20;

// Of a footer before its length is known; most are smaller.
constexpr std::uint64_t kFooterAimBytes = std::uint64_t{256} << 10;
// Files whose footers are read at once.
constexpr std::size_t kFilesAtOnce = 64;

// Three small reads a file.
class ArrayRecordBuilder {
 public:
  ArrayRecordBuilder(const BuildContext& context, const std::vector<ObjectInfo>& objects,
                     RangeFetcher& fetcher)
      : context_(context),
        objects_(objects),
        fetcher_(fetcher),
        read_bytes_(context.read_bytes(kReadBytes)) {}

  Result<std::string> run() {
    for (std::size_t begin = 0; begin < objects_.size(); begin += kFilesAtOnce) {
      const std::size_t end = std::min(objects_.size(), begin + kFilesAtOnce);
      HEADRACE_TRY(add_files(std::span(objects_).subspan(begin, end - begin)));
      context_.report(end, objects_.size());
    }
    IndexSource source;
    if (!objects_.empty()) source = {objects_[0].key, objects_[0].etag, objects_[0].size_bytes};
    Column record{.name = "record", .encoding = "bytes", .dtype = {}, .shape = {}};
    return writer_.finish({.format = Format::kArrayRecord,
                           .columns = {std::move(record)},
                           .source = std::move(source),
                           .block_bytes = context_.options.block_bytes,
                           .broken = context_.left_out()});
  }

 private:
  // A file that is being read.
  struct File {
    const ObjectInfo* object = nullptr;
    std::uint64_t offset = 0;  // Of its footer.
    ArrayRecordFooter footer = {};
    Frame first = {};  // Its first chunk; one of no bytes where there is none.
    bool is_broken = false;
  };
  using Files = std::vector<File>;

  Status add_files(std::span<const ObjectInfo> objects) {
    Files files;
    for (const ObjectInfo& object : objects) files.push_back({.object = &object});
    HEADRACE_TRY(read_offsets(files));
    HEADRACE_TRY(read_footers(files));
    HEADRACE_TRY(check_chunks(files));
    for (const File& file : files) add(*file.object, file.footer);
    return Status();
  }

  static std::uint64_t last_block(const ObjectInfo& file) {
    return file.size_bytes < kRiegeliBlockBytes ? 0 : file.size_bytes - kRiegeliBlockBytes;
  }

  // Goes on without a broken file.
  Status settle(File& file, Status status) {
    if (status.ok()) return status;
    file.is_broken = true;
    return context_.leave_out(*file.object, std::move(status));
  }
  static void drop_broken(Files& files) {
    std::erase_if(files, [](const File& file) { return file.is_broken; });
  }

  Status read_offsets(Files& files) {
    std::vector<RangeRead> reads;
    for (const File& file : files)
      reads.push_back(range(*file.object, last_block(*file.object), file.object->size_bytes));
    HEADRACE_TRY_ASSIGN(const auto blocks, fetch_all(fetcher_, std::move(reads)));
    for (std::size_t i = 0; i < files.size(); ++i) {
      auto offset =
          parse_postscript(std::as_bytes(std::span(blocks[i])), files[i].object->size_bytes);
      if (offset) files[i].offset = *offset;
      if (!offset) HEADRACE_TRY(settle(files[i], std::move(offset).error()));
    }
    drop_broken(files);
    return Status();
  }

  Status read_footers(Files& files) {
    std::vector<RangeRead> reads;
    for (const File& file : files) {
      const std::uint64_t most = file.offset + std::min(read_bytes_, kFooterAimBytes);
      reads.push_back(range(*file.object, file.offset, std::min(last_block(*file.object), most)));
    }
    HEADRACE_TRY_ASSIGN(auto begins, fetch_all(fetcher_, std::move(reads)));
    for (std::size_t i = 0; i < files.size(); ++i) {
      auto footer = read_footer(*files[i].object, files[i].offset, std::move(begins[i]));
      if (!footer) {
        HEADRACE_TRY(settle(files[i], std::move(footer).error()));
        continue;
      }
      files[i].footer = *std::move(footer);
      if (!files[i].footer.frames.empty()) files[i].first = files[i].footer.frames[0];
    }
    drop_broken(files);
    return Status();
  }

  // `stored`: the begin of the footer's chunk, or all of it. The chunk's header says how long it
  // is: whatever a postscript says, no more of the file than a footer is read.
  Result<ArrayRecordFooter> read_footer(const ObjectInfo& file, std::uint64_t offset,
                                        std::string stored) {
    std::array<std::byte, kRiegeliChunkHeaderBytes> head{};
    strip_riegeli_blocks(std::as_bytes(std::span(stored)), offset, head);
    HEADRACE_TRY_ASSIGN(const RiegeliChunkHeader header, parse_riegeli_chunk(head));
    if (header.data_bytes > kMostFooterBytes) {
      return Status(Code::kUnsupported,
                    fmt::format("arrayrecord: a footer of {} bytes; up to {} are read",
                                header.data_bytes, kMostFooterBytes));
    }
    const std::uint64_t chunk_bytes = kRiegeliChunkHeaderBytes + header.data_bytes;
    const std::uint64_t block_count =
        chunk_bytes / (kRiegeliBlockBytes - kRiegeliBlockHeaderBytes) + 2;
    const std::uint64_t end =
        std::min(last_block(file), offset + chunk_bytes + block_count * kRiegeliBlockHeaderBytes);
    while (offset + stored.size() < end) {
      const std::uint64_t at = offset + stored.size();
      HEADRACE_TRY_ASSIGN(const auto more,
                          fetch_all(fetcher_, {range(file, at, std::min(end, at + read_bytes_))}));
      stored += more[0];
    }
    HEADRACE_TRY_ASSIGN(auto footer, parse_footer(std::as_bytes(std::span(stored)), offset));
    if (footer.record_count <= kMostShardSamples) return footer;
    return Status(Code::kUnsupported,
                  fmt::format("arrayrecord: {} records in one file; up to {} are read, split it",
                              footer.record_count, kMostShardSamples));
  }

  // Transposed chunks are said now, not in training.
  Status check_chunks(Files& files) {
    constexpr std::uint64_t kLength = kRiegeliChunkHeaderBytes + 2 * kRiegeliBlockHeaderBytes;
    std::vector<RangeRead> reads;
    for (const File& file : files) {
      const std::uint64_t begin = file.first.stored_begin;
      reads.push_back(
          range(*file.object, begin, begin + std::min(kLength, file.first.stored_bytes)));
    }
    HEADRACE_TRY_ASSIGN(const auto heads, fetch_all(fetcher_, reads));
    for (std::size_t i = 0; i < files.size(); ++i) {
      if (heads[i].empty()) continue;
      const auto stored = std::as_bytes(std::span(heads[i]));
      HEADRACE_TRY(settle(files[i], check_chunk(stored, reads[i].offset_bytes)));
    }
    drop_broken(files);
    return Status();
  }

  static Status check_chunk(std::span<const std::byte> stored, std::uint64_t offset) {
    std::array<std::byte, kRiegeliChunkHeaderBytes> head{};
    strip_riegeli_blocks(stored, offset, head);
    HEADRACE_TRY_ASSIGN(const RiegeliChunkHeader header, parse_riegeli_chunk(head));
    if (header.type != RiegeliChunk::kTransposed) return Status();
    return Status(Code::kUnsupported,
                  "arrayrecord: transposed chunks are not read; write the file with "
                  "'transpose:false' (the default of array_record)");
  }

  void add(const ObjectInfo& file, const ArrayRecordFooter& footer) {
    context_.add_whole();
    ShardRecord shard;
    shard.sample_count = footer.record_count;
    shard.stored_bytes = file.size_bytes;
    shard.raw_bytes = footer.raw_bytes;
    shard.first_object = writer_.object_count();
    shard.has_bounds = false;
    shard.compression = Compression::kOwn;
    shard.first_frame = writer_.add_frames(footer.frames);
    shard.frame_count = static_cast<std::uint32_t>(footer.frames.size());
    writer_.add_object(file.key, file.etag, file.size_bytes);
    writer_.add_shard(shard);
  }

  static RangeRead range(const ObjectInfo& file, std::uint64_t begin, std::uint64_t end) {
    return {.key = file.key, .etag = file.etag, .offset_bytes = begin, .length_bytes = end - begin};
  }

  const BuildContext& context_;
  const std::vector<ObjectInfo>& objects_;
  RangeFetcher& fetcher_;
  const std::uint64_t read_bytes_;
  IndexWriter writer_;
};

}  // namespace

Result<std::string> build_array_record_index(const BuildContext& context,
                                             const std::vector<ObjectInfo>& objects) {
  HEADRACE_TRY_ASSIGN(const auto fetcher,
                      RangeFetcher::create(context.store, context.pool, {.call = context.call}));
  return ArrayRecordBuilder(context, objects, *fetcher).run();
}

}  // namespace headrace::detail
