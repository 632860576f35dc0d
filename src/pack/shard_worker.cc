// A worker makes one shard at a time and never holds more than its share of the memory: images on
// their way (put_bytes_), slabs of the shard being made (making_bytes_) and the reads under way
// (share_.read_bytes, always kept free) add up to share_bytes at most. So acquire() waits for its
// own earlier shards while the share is used up. Shares add up to no more than the memory of the
// run (share_memory()).
//
// Four ways, the first that fits:
// - directory to directory: files are copied into a temporary file that is published as a whole,
//   no image is held;
// - an image in memory, put as one object;
// - the same compressed: both forms are in memory at once, the raw one is given back before the
//   put;
// - in parts, one in memory at a time, for images larger than the share allows.
//
// A shard is finished only once the store has answered; only then is it recorded. A run that goes
// on after it was killed makes the others again.
#include "pack/shard_worker.h"

#include <zstd.h>

#include <algorithm>
#include <utility>

#include "base/atomic_file.h"
#include "base/check.h"
#include "headrace/clock.h"
#include "headrace/range_fetcher.h"
#include "pack/digest.h"
#include "pack/local_shard.h"
#include "pack/shard_image.h"

namespace headrace::pack_detail {
namespace {

// What a shard goes through on its way from directory to directory. 1 MiB stays in the second-level
// cache: 190,000 files of 16 KB a CPU second are read into it, 160,000 into 64 MiB (Xeon, tmpfs,
// November 2026).
constexpr std::uint64_t kLocalBufferBytes = 1 << 20;
// How long a worker waits for memory before it looks whether it should stop.
constexpr std::chrono::milliseconds kSlice{50};

Status cancelled() { return Status(Code::kCancelled, "pack: stopped"); }

}  // namespace

Result<std::unique_ptr<ShardWorker>> ShardWorker::create(const PackPlan& plan,
                                                         const MemoryShare& share, SlabPool& pool,
                                                         io::ReadBudget& reads, Store& source,
                                                         Store& target,
                                                         std::function<Status()> may_write) {
  HEADRACE_TRY_ASSIGN(auto source_handle, source.new_handle());
  HEADRACE_TRY_ASSIGN(auto target_handle, target.new_handle());
  auto worker = std::unique_ptr<ShardWorker>(
      new ShardWorker(plan, share, pool, reads, std::move(source_handle), std::move(target_handle),
                      std::move(may_write)));
  if (!source.local_directory().empty()) worker->files_.emplace(source.local_directory());
  worker->target_directory_ = target.local_directory();
  return worker;
}

Status ShardWorker::make(std::uint64_t shard, std::stop_token stop,
                         std::vector<FinishedShard>& finished) {
  making_bytes_ = 0;
  if (files_ && !target_directory_.empty() && !plan_.is_compressed() &&
      plan_.layout != Layout::kMdsTokens) {
    return make_locally(shard, stop, finished);
  }
  if (files_) HEADRACE_TRY(check_empty_files(shard));
  const bool is_whole =
      plan_.shards[shard].image_bytes <= share_.part_bytes || plan_.is_compressed();
  HEADRACE_TRY(is_whole ? make_whole(shard, stop, finished) : make_in_parts(shard, stop, finished));
  return reap_puts(finished);
}

Status ShardWorker::flush(std::stop_token stop, std::vector<FinishedShard>& finished) {
  while (!puts_.empty()) HEADRACE_TRY(wait_put(stop, finished));
  return {};
}

/// Memory for the shard being made: waits for earlier shards to arrive while the share is used up.
Result<Slab> ShardWorker::acquire(std::uint64_t size_bytes, std::stop_token stop,
                                  std::vector<FinishedShard>& finished) {
  const std::uint64_t charged = SlabPool::charged_bytes(size_bytes);
  while (!puts_.empty() &&
         put_bytes_ + making_bytes_ + charged + share_.read_bytes > share_.share_bytes) {
    HEADRACE_TRY(wait_put(stop, finished));
  }
  making_bytes_ += charged;
  while (!stop.stop_requested()) {
    auto slab = pool_.acquire(size_bytes, system_clock().now() + kSlice);
    if (slab || slab.error().code() != Code::kDeadline) return slab;
  }
  return cancelled();
}

Status ShardWorker::make_whole(std::uint64_t shard, std::stop_token stop,
                               std::vector<FinishedShard>& finished) {
  const std::uint64_t image_bytes = plan_.shards[shard].image_bytes;
  HEADRACE_TRY_ASSIGN(Slab image, acquire(image_bytes, stop, finished));
  HEADRACE_TRY(read_window(shard, 0, image.bytes(), stop));
  auto put = std::make_unique<Put>();
  put->shard = {shard, plan_.facts_of(shard)};
  ShardFacts& facts = put->shard.facts;
  if (!plan_.hash.empty()) {
    HEADRACE_TRY_ASSIGN(Digest digest, Digest::create(plan_.hash));
    digest.update(image.bytes());
    facts.raw_hash = digest.finish();
  }
  if (plan_.is_compressed()) {
    HEADRACE_TRY_ASSIGN(Slab zip, compress(image.bytes(), facts, stop, finished));
    image = std::move(zip);
  }
  return submit_put(std::move(put), std::move(image));
}

Result<Slab> ShardWorker::compress(std::span<const std::byte> image, ShardFacts& facts,
                                   std::stop_token stop, std::vector<FinishedShard>& finished) {
  HEADRACE_TRY_ASSIGN(Slab zip, acquire(compressed_bound(image.size()), stop, finished));
  const std::size_t length = ZSTD_compress(zip.bytes().data(), zip.bytes().size(), image.data(),
                                           image.size(), plan_.zstd_level);
  if (ZSTD_isError(length)) {
    return Status(Code::kInternal, std::string("pack: zstd: ") + ZSTD_getErrorName(length));
  }
  facts.stored_bytes = length;
  if (!plan_.hash.empty()) {
    HEADRACE_TRY_ASSIGN(Digest digest, Digest::create(plan_.hash));
    digest.update(zip.bytes().first(length));
    facts.zip_hash = digest.finish();
  }
  return zip;
}

/// From directory to directory: no image is held.
Status ShardWorker::make_locally(std::uint64_t shard, std::stop_token stop,
                                 std::vector<FinishedShard>& finished) {
  if (!local_buffer_) {
    const std::uint64_t bytes = std::min(kLocalBufferBytes, share_.part_bytes);
    HEADRACE_TRY_ASSIGN(local_buffer_, acquire(bytes, stop, finished));
  }
  HEADRACE_TRY_ASSIGN(TemporaryFile file, TemporaryFile::create(target_directory_));
  LocalShard writer(plan_, *files_, file, local_buffer_.bytes(), stop);
  if (!plan_.hash.empty()) {
    HEADRACE_TRY_ASSIGN(Digest digest, Digest::create(plan_.hash));
    writer.hash_with(std::move(digest));
  }
  draw_files(plan_, shard, writer);
  HEADRACE_TRY(writer.finish());
  FinishedShard done{shard, plan_.facts_of(shard)};
  done.facts.raw_hash = writer.hash();
  HEADRACE_TRY(may_write_());
  HEADRACE_TRY(file.publish(target_directory_ + "/" + done.facts.name));
  finished.push_back(std::move(done));
  return {};
}

/// No range is drawn for an empty file, but one may have been written to since it was listed.
Status ShardWorker::check_empty_files(std::uint64_t shard) {
  const ShardPlan& part = plan_.shards[shard];
  for (std::uint64_t i = part.first_file; i < part.first_file + part.file_count; ++i) {
    if (plan_.files[i].size_bytes > 0) continue;
    HEADRACE_TRY(files_->open(plan_.files[i]).annotate("pack"));
    HEADRACE_TRY(files_->check().annotate("pack"));
  }
  return {};
}

/// Fills the window from files_, ranges_ being drawn.
Status ShardWorker::read_locally(std::span<std::byte> window, std::stop_token stop) {
  const bool is_expanded = plan_.layout == Layout::kMdsTokens;
  if (is_expanded && !local_buffer_) {
    HEADRACE_TRY_ASSIGN(local_buffer_, pool_.acquire(share_.chunk_bytes, TimePoint::max()));
  }
  for (std::size_t i = 0; i < ranges_.size(); ++i) {
    if (stop.stop_requested()) return cancelled();
    const FileRange& range = ranges_[i];
    if (i == 0 || ranges_[i - 1].file != range.file)
      HEADRACE_TRY(files_->open(plan_.files[range.file]).annotate("pack"));
    const auto into = is_expanded ? local_buffer_.bytes().first(range.length_bytes)
                                  : window.subspan(range.window_offset_bytes, range.length_bytes);
    HEADRACE_TRY(files_->read(range.offset_bytes, into).annotate("pack"));
    if (is_expanded) place_bytes(plan_, range, into, window);
    const bool is_last = i + 1 == ranges_.size() || ranges_[i + 1].file != range.file;
    // After its last range: a file that was written to while it was read is an error, not a
    // mixture.
    if (is_last) HEADRACE_TRY(files_->check().annotate("pack"));
  }
  return {};
}

Status ShardWorker::read_window(std::uint64_t shard, std::uint64_t begin,
                                std::span<std::byte> window, std::stop_token stop) {
  ranges_.clear();
  draw_window(plan_, shard, begin, window, share_.chunk_bytes, ranges_);
  if (files_) return read_locally(window, stop);
  RangeFetcher fetcher(*source_, pool_,
                       {.call = {.stop = stop}, .max_bytes = share_.read_bytes, .budget = &reads_});
  for (std::size_t i = 0; i < ranges_.size(); ++i) {
    const FileRange& range = ranges_[i];
    fetcher.start({.key = plan_.files[range.file].key,
                   .etag = plan_.files[range.file].etag,
                   .offset_bytes = range.offset_bytes,
                   .length_bytes = range.length_bytes,
                   .tag = i});
  }
  while (fetcher.pending() > 0) {
    auto data = fetcher.next();
    if (!data) return data.error().clone().annotate("pack");
    place_bytes(plan_, ranges_[data->tag], data->bytes(), window);
  }
  return {};
}

Status ShardWorker::submit_put(std::unique_ptr<Put> put, Slab slab) {
  HEADRACE_TRY(may_write_());
  Request request;
  request.op = Op::kPut;
  request.key = put->shard.facts.name;
  request.length_bytes = put->shard.facts.stored_bytes;
  put->charged_bytes = SlabPool::charged_bytes(slab.bytes().size());
  request.slab = std::move(slab);
  request.tag = put->shard.shard;
  // The image itself has been given back where a compressed one took its place.
  making_bytes_ = 0;
  put_bytes_ += put->charged_bytes;
  puts_.push_back(std::move(put));
  queue_.push(std::move(request));
  queue_.flush();
  return {};
}

/// Waits for one shard to arrive.
Status ShardWorker::wait_put(std::stop_token stop, std::vector<FinishedShard>& finished) {
  Completion completion;
  while (true) {
    HEADRACE_TRY_ASSIGN(const std::size_t count,
                        queue_.wait({&completion, 1}, TimePoint::max(), stop));
    if (count == 1) return take_put(std::move(completion), finished);
  }
}

/// Takes the shards that have arrived, so that they are on record should the run be killed.
Status ShardWorker::reap_puts(std::vector<FinishedShard>& finished) {
  Completion completion;
  while (!puts_.empty()) {
    HEADRACE_TRY_ASSIGN(const std::size_t count, queue_.wait({&completion, 1}, TimePoint{}));
    if (count == 0) break;
    HEADRACE_TRY(take_put(std::move(completion), finished));
  }
  return {};
}

Status ShardWorker::take_put(Completion completion, std::vector<FinishedShard>& finished) {
  const auto put = std::find_if(puts_.begin(), puts_.end(), [&](const std::unique_ptr<Put>& p) {
    return p->shard.shard == completion.tag;
  });
  HEADRACE_CHECK(put != puts_.end());
  put_bytes_ -= (*put)->charged_bytes;
  if (completion.status.ok()) finished.push_back(std::move((*put)->shard));
  puts_.erase(put);
  return std::move(completion.status);
}

/// A shard that is larger than the worker's memory: file layouts without compression only.
Status ShardWorker::make_in_parts(std::uint64_t shard, std::stop_token stop,
                                  std::vector<FinishedShard>& finished) {
  // put_parts() tells nobody of shards that arrive meanwhile: none may be under way.
  HEADRACE_TRY(flush(stop, finished));
  FinishedShard done{shard, plan_.facts_of(shard)};
  HEADRACE_TRY_ASSIGN(const auto uploader,
                      io::Uploader::begin(*target_, *target_, done.facts.name,
                                          {.call = {.stop = stop}, .max_in_flight = 1}));
  HEADRACE_TRY(put_parts(done, *uploader, stop));
  finished.push_back(std::move(done));
  return {};
}

Status ShardWorker::put_parts(FinishedShard& done, io::Uploader& uploader, std::stop_token stop) {
  const std::uint64_t image_bytes = done.facts.stored_bytes;
  Result<Digest> digest = Digest::create(plan_.hash.empty() ? "xxh3_64" : plan_.hash);
  if (!digest) return std::move(digest).error();
  std::vector<FinishedShard> none;
  for (std::uint64_t begin = 0; begin < image_bytes; begin += share_.part_bytes) {
    const std::uint64_t length = std::min(share_.part_bytes, image_bytes - begin);
    making_bytes_ = 0;
    HEADRACE_TRY_ASSIGN(Slab part, acquire(length, stop, none));
    HEADRACE_TRY(read_window(done.shard, begin, part.bytes(), stop));
    if (!plan_.hash.empty()) digest->update(part.bytes());
    HEADRACE_TRY(uploader.put(std::move(part), length));
    // The share has room for one part.
    HEADRACE_TRY(uploader.wait_one());
  }
  if (!plan_.hash.empty()) done.facts.raw_hash = digest->finish();
  HEADRACE_TRY(may_write_());
  auto object = uploader.finish();
  return object ? Status() : std::move(object).error();
}

}  // namespace headrace::pack_detail
