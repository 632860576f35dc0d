// Files are begun and emitted in the order of the objects and read in any: an index has its shards
// in that order, whatever comes first. At most `window_` files are begun and not emitted, each
// with one read under way, which bounds what is held of files that have ended before their turn.
//
// Whether a file is compressed is known only from its first bytes, and inflaters are large. So the
// window begins as if all were compressed and widens when a file proves plain; a compressed file
// for which there is no place is put aside and its first bytes are read again later. What a file
// has given is stored as soon as it has ended (partial_): a build that is stopped goes on from
// there.
#include "shard/scan/scan_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <set>
#include <utility>

#include "headrace/range_fetcher.h"
#include "shard/dataset/empty_shard.h"
#include "shard/index/partial.h"
#include "shard/scan/file_reading.h"

namespace headrace::detail {
namespace {

// One read of a scan. At 90 MB/s a connection, 4 MiB take 47 ms: longer than the first byte, so
// requests are not what a scan costs; and members above it are skipped instead of read. Source:
// facts on S3 throughput in docs/design/0007.
constexpr std::uint64_t kScanReadBytes = std::uint64_t{4} << 20;
// Files scanned at once. Each has one read in flight.
constexpr std::size_t kFileWindow = 64;
// Broken files after which one must have been whole. More than damage breaks at the front of a set.
constexpr std::size_t kMostBrokenAtFirst = 64;
// Compressed files that are inflated at once: an inflater may hold a window of 128 MiB.
constexpr std::size_t kCompressedWindow = 4;

class Scanner {
 public:
  Scanner(const BuildContext& context, const std::vector<ObjectInfo>& objects, FileScanJob& job,
          RangeFetcher& fetcher)
      : context_(context),
        objects_(objects),
        job_(job),
        fetcher_(fetcher),
        partial_(context.options.index_cache_dir, context.store.url(), job.kind()),
        read_bytes_(context.read_bytes(kScanReadBytes)),
        plain_window_(context.options.index_workers == 0 ? kFileWindow
                                                         : context.options.index_workers),
        window_(std::min(plain_window_, kCompressedWindow)),
        readings_(objects.size()),
        found_(objects.size()) {}

  Status run() {
    std::size_t started = 0;
    std::size_t finished = 0;
    while (finished < objects_.size()) {
      for (; started < objects_.size() && started < finished + window_; ++started)
        HEADRACE_TRY(settle(started, start(started)));
      for (; finished < started && found_[finished]; ++finished) {
        HEADRACE_TRY(emit(finished));
        HEADRACE_TRY(refuse_empty_among_compressed(finished));
        HEADRACE_TRY(refuse_other_format(finished));
        context_.report(finished + 1, objects_.size());
      }
      if (finished == started) continue;
      HEADRACE_TRY_ASSIGN(const auto data, fetcher_.next());
      HEADRACE_TRY(settle(data.tag, take(data)));
    }
    return Status();
  }

 private:
  // Goes on without object `i` where `status` says that it is broken.
  Status settle(std::size_t i, Status status) {
    if (status.ok()) return status;
    HEADRACE_TRY(context_.leave_out(objects_[i], std::move(status)));
    readings_[i].reset();
    end_inflating(i);
    found_[i] = std::make_unique<ScannedFile>();
    found_[i]->is_broken = true;
    return Status();
  }

  // Where not one of many is whole, they are of another format: the rest need not be read.
  Status refuse_other_format(std::size_t i) const {
    const BrokenShards* broken = context_.broken;
    if (broken == nullptr || broken->whole_count() > 0 || i + 1 < kMostBrokenAtFirst)
      return Status();
    return broken->error(context_.store);
  }

  Status start(std::size_t i) {
    const ObjectInfo& object = objects_[i];
    if (const auto kept = partial_.load(object)) {
      if (auto scanned = parse_scanned(*kept)) {
        found_[i] = std::make_unique<ScannedFile>(*std::move(scanned));
        return Status();
      }
    }
    if (auto known = job_.known(i)) {
      found_[i] = std::make_unique<ScannedFile>(
          ScannedFile{*std::move(known), {Compression::kNone, object.size_bytes}});
      return Status();
    }
    auto scan = job_.start(i);
    if (object.size_bytes == 0) {
      HEADRACE_TRY(scan->finish(0));
      found_[i] = std::make_unique<ScannedFile>();
      return Status();
    }
    readings_[i] = std::make_unique<FileReading>(
        std::move(scan), object.size_bytes, context_.pool.limit_bytes() / (2 * kCompressedWindow));
    request(i);
    return Status();
  }

  void request(std::size_t i) {
    const FileReading::Demand demand = readings_[i]->demand(read_bytes_);
    fetcher_.start({.key = objects_[i].key,
                    .etag = objects_[i].etag,
                    .offset_bytes = demand.offset_bytes,
                    .length_bytes = demand.length_bytes,
                    .tag = i});
  }

  Status take(const RangeData& data) {
    const std::size_t i = data.tag;
    if (data.object_size_bytes != 0 && data.object_size_bytes != objects_[i].size_bytes) {
      return Status(Code::kChanged, fmt::format("has {} bytes, the listing said {}",
                                                data.object_size_bytes, objects_[i].size_bytes));
    }
    if (!readings_[i]->has_begun() && !may_begin(i, data.bytes())) return Status();
    HEADRACE_TRY(readings_[i]->take(data.bytes(), job_));
    if (!readings_[i]->is_done()) {
      request(i);
      return Status();
    }
    const std::unique_ptr<FileReading> reading = std::move(readings_[i]);
    end_inflating(i);
    found_[i] = std::make_unique<ScannedFile>(ScannedFile{reading->scan().take(), reading->form()});
    partial_.store(objects_[i], scanned_to_bytes(found_[i]->samples, found_[i]->form));
    return Status();
  }

  // False: the file is compressed, and as many as may be are being inflated. It is read again when
  // one of them has ended.
  bool may_begin(std::size_t i, std::span<const std::byte> head) {
    if (job_.form_of(head) == Compression::kNone) {
      if (inflating_.empty()) window_ = plain_window_;
      return true;
    }
    window_ = std::min(plain_window_, kCompressedWindow);
    if (inflating_.size() == kCompressedWindow) {
      held_back_.push_back(i);
      return false;
    }
    inflating_.insert(i);
    return true;
  }

  void end_inflating(std::size_t i) {
    if (inflating_.erase(i) == 0 || held_back_.empty()) return;
    request(held_back_.front());
    held_back_.pop_front();
  }

  Status emit(std::size_t i) {
    const std::unique_ptr<ScannedFile> found = std::move(found_[i]);
    if (found->is_broken) return Status();
    if (Status status = check(found->samples); !status.ok())
      return context_.leave_out(objects_[i], std::move(status));
    context_.add_whole();
    context_.add_cut(objects_[i], found->samples.cut_bytes);
    if (found->form.compression != Compression::kNone && !is_compressed_name(objects_[i].key))
      has_unnamed_compressed_ = true;
    return named(i, job_.emit(i, std::move(found->samples), found->form));
  }

  Status check(const FileSamples& samples) {
    if (samples.sample_count() <= kMostShardSamples) return job_.check(samples);
    return Status(Code::kUnsupported,
                  fmt::format("{} samples in one file; up to {} are read, split it",
                              samples.sample_count(), kMostShardSamples));
  }

  // Where names do not say that files are compressed, the others of a set do.
  Status refuse_empty_among_compressed(std::size_t i) {
    if (objects_[i].size_bytes == 0) empty_.push_back(i);
    if (!has_unnamed_compressed_) return Status();
    for (const std::size_t empty : std::exchange(empty_, {})) {
      HEADRACE_TRY(context_.leave_out(
          objects_[empty],
          Status(Code::kCorrupt, "has no bytes, the others are compressed files")));
    }
    return Status();
  }

  Status named(std::size_t i, Status status) const {
    if (status.ok()) return status;
    return std::move(status).annotate(context_.store.object_url(objects_[i].key));
  }

  const BuildContext& context_;
  const std::vector<ObjectInfo>& objects_;
  FileScanJob& job_;
  RangeFetcher& fetcher_;
  PartialIndex partial_;
  const std::uint64_t read_bytes_;
  const std::size_t plain_window_;
  std::size_t window_;  ///< Files that are begun and not emitted; few until one proved plain.
  std::set<std::size_t> inflating_;
  std::deque<std::size_t> held_back_;
  std::vector<std::unique_ptr<FileReading>> readings_;  // Of the files that are being read.
  std::vector<std::unique_ptr<ScannedFile>> found_;     // Not emitted yet.
  std::vector<std::size_t> empty_;                      // Objects without bytes.
  bool has_unnamed_compressed_ = false;
};

bool begins_with(std::span<const std::byte> head, std::initializer_list<unsigned char> mark) {
  return head.size() >= mark.size() &&
         std::equal(mark.begin(), mark.end(), head.begin(),
                    [](unsigned char m, std::byte b) { return m == std::to_integer<int>(b); });
}

}  // namespace

Compression sniff_compression(std::span<const std::byte> head) noexcept {
  if (begins_with(head, {0x1f, 0x8b, 8})) return Compression::kGzip;
  if (begins_with(head, {0x28, 0xb5, 0x2f, 0xfd})) return Compression::kZstd;
  // A skippable frame may come first: 0x184D2A5? little-endian.
  if (head.size() >= 4 && (std::to_integer<unsigned>(head[0]) & 0xf0) == 0x50 &&
      begins_with(head.subspan(1), {0x2a, 0x4d, 0x18}))
    return Compression::kZstd;
  if (begins_with(head, {'B', 'Z', 'h'}) && head.size() >= 10 &&
      (begins_with(head.subspan(4), {0x31, 0x41, 0x59, 0x26, 0x53, 0x59}) ||
       begins_with(head.subspan(4), {0x17, 0x72, 0x45, 0x38, 0x50, 0x90})))
    return Compression::kBzip2;
  if (begins_with(head, {0xfd, '7', 'z', 'X', 'Z', 0})) return Compression::kXz;
  return Compression::kNone;
}

bool looks_like_zlib(std::span<const std::byte> head) noexcept {
  if (head.size() < 2) return false;
  const auto cmf = std::to_integer<unsigned>(head[0]);
  const auto flags = std::to_integer<unsigned>(head[1]);
  // Deflate with a window up to 32 KiB, no preset dictionary, and the check of both bytes.
  return (cmf & 15) == 8 && cmf >> 4 <= 7 && (flags & 0x20) == 0 && (cmf << 8 | flags) % 31 == 0;
}

Status scan_files(const BuildContext& context, const std::vector<ObjectInfo>& objects,
                  FileScanJob& job) {
  HEADRACE_TRY_ASSIGN(const auto fetcher,
                      RangeFetcher::create(context.store, context.pool, {.call = context.call}));
  return Scanner(context, objects, job, *fetcher).run();
}

void add_scanned_shard(IndexWriter& writer, const ObjectInfo& object, const FileSamples& samples,
                       const FileForm& form) {
  ShardRecord shard;
  shard.sample_count = samples.sample_count();
  shard.stored_bytes = object.size_bytes;
  shard.raw_bytes = form.raw_bytes;
  shard.first_object = writer.object_count();
  shard.compression = form.compression;
  shard.has_gaps = samples.has_gaps;
  // A shard without samples has no boundaries, not even its first.
  if (shard.sample_count > 0) shard.bounds = writer.bounds().append(samples.bounds);
  writer.add_object(object.key, object.etag, object.size_bytes);
  writer.add_shard(shard);
}

}  // namespace headrace::detail
