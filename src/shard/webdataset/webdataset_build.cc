#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "shard/build.h"
#include "shard/range_fetcher.h"
#include "shard/webdataset/tar_scan.h"

namespace headrace::detail {
namespace {

// One read of a scan. At 90 MB/s a connection, 4 MiB take 47 ms: longer than the first byte, so
// requests are not what a scan costs; and members above it are skipped instead of read. Source:
// facts on S3 throughput in docs/design/0007.
constexpr std::uint64_t kScanReadBytes = std::uint64_t{4} << 20;
// Files scanned at once. Each has one read in flight.
constexpr std::size_t kFileWindow = 64;

class WebDatasetBuilder {
 public:
  WebDatasetBuilder(const BuildContext& context, const std::vector<ObjectInfo>& objects,
                    RangeFetcher& fetcher)
      : context_(context),
        objects_(objects),
        fetcher_(fetcher),
        read_bytes_(context.read_bytes(kScanReadBytes)) {
    scans_.resize(objects.size());
  }

  Result<std::string> run() {
    std::size_t started = 0;
    std::size_t finished = 0;
    while (finished < objects_.size()) {
      for (; started < objects_.size() && started < finished + kFileWindow; ++started)
        HEADRACE_TRY(start(started));
      HEADRACE_TRY_ASSIGN(const auto data, fetcher_.next());
      HEADRACE_TRY(take(data));
      for (; finished < objects_.size() && scans_[finished] && scans_[finished]->is_done();
           ++finished) {
        HEADRACE_TRY(emit(finished));
        context_.report(finished + 1, objects_.size());
      }
    }
    return finish();
  }

 private:
  Status start(std::size_t i) {
    if (objects_[i].size_bytes == 0) return named(i, Status(Code::kCorrupt, "tar: an empty file"));
    scans_[i] = std::make_unique<TarScan>(objects_[i].size_bytes);
    request(i);
    return Status();
  }

  void request(std::size_t i) {
    const TarScan& scan = *scans_[i];
    const std::uint64_t rest = objects_[i].size_bytes - scan.offset();
    fetcher_.start({.key = objects_[i].key,
                    .etag = objects_[i].etag,
                    .offset_bytes = scan.offset(),
                    .length_bytes = std::min(rest, std::max(read_bytes_, scan.needed_bytes())),
                    .tag = i});
  }

  Status take(const RangeData& data) {
    const std::size_t i = data.tag;
    if (data.object_size_bytes != 0 && data.object_size_bytes != objects_[i].size_bytes) {
      return named(
          i, Status(Code::kChanged, fmt::format("has {} bytes, the listing said {}",
                                                data.object_size_bytes, objects_[i].size_bytes)));
    }
    if (Status status = scans_[i]->feed(data.bytes()); !status.ok())
      return named(i, std::move(status));
    if (!scans_[i]->is_done()) request(i);
    return Status();
  }

  Status emit(std::size_t i) {
    const SampleGrouper& samples = scans_[i]->samples();
    ShardRecord shard;
    shard.sample_count = samples.sample_count();
    shard.stored_bytes = shard.raw_bytes = objects_[i].size_bytes;
    shard.first_object = writer_.object_count();
    shard.has_gaps = samples.has_gaps();
    shard.bounds = append_bounds(samples, shard.has_gaps);
    for (const auto& [index, key] : samples.joined_keys())
      writer_.add_key(writer_.sample_count() + index, key);
    for (const std::string& suffix : samples.suffixes()) suffixes_.insert(suffix);
    if (suffixes_.size() > kMostSuffixes) {
      return named(i, Status(Code::kUnsupported,
                             fmt::format("more than {} different fields", kMostSuffixes)));
    }
    writer_.add_object(objects_[i].key, objects_[i].etag, objects_[i].size_bytes);
    writer_.add_shard(shard);
    scans_[i].reset();
    return Status();
  }

  BoundsRef append_bounds(const SampleGrouper& samples, bool has_gaps) {
    if (has_gaps) return writer_.bounds().append(samples.bounds());
    std::vector<std::uint64_t> begins;
    for (std::size_t j = 0; j < samples.bounds().size(); j += 2)
      begins.push_back(samples.bounds()[j]);
    if (!begins.empty()) begins.push_back(samples.bounds().back());
    return writer_.bounds().append(begins);
  }

  std::string finish() {
    std::vector<Column> columns;
    columns.push_back({.name = "__key__", .encoding = "str", .dtype = {}, .shape = {}});
    for (const std::string& suffix : suffixes_) {
      columns.push_back({.name = suffix, .encoding = "bytes", .dtype = {}, .shape = {}});
    }
    const ObjectInfo& first = objects_.front();
    return writer_.finish({.format = Format::kWebDataset,
                           .columns = std::move(columns),
                           .source = {first.key, first.etag, first.size_bytes},
                           .block_bytes = context_.options.block_bytes});
  }

  Status named(std::size_t i, Status status) const {
    return std::move(status).annotate(context_.store.object_url(objects_[i].key));
  }

  const BuildContext& context_;
  const std::vector<ObjectInfo>& objects_;
  RangeFetcher& fetcher_;
  const std::uint64_t read_bytes_;
  std::vector<std::unique_ptr<TarScan>> scans_;
  IndexWriter writer_;
  std::set<std::string> suffixes_;
};

}  // namespace

Result<std::string> build_webdataset_index(const BuildContext& context,
                                           const std::vector<ObjectInfo>& objects) {
  HEADRACE_TRY_ASSIGN(const auto fetcher,
                      RangeFetcher::create(context.store, context.pool, context.call));
  return WebDatasetBuilder(context, objects, *fetcher).run();
}

}  // namespace headrace::detail
