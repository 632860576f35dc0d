#include "pack/shard_worker.h"

#include <sys/stat.h>
#include <zstd.h>

#include <algorithm>
#include <cerrno>
#include <thread>
#include <utility>

#include "base/atomic_file.h"
#include "base/check.h"
#include "base/errno_status.h"
#include "headrace/clock.h"
#include "pack/digest.h"
#include "pack/local_shard.h"
#include "pack/shard_image.h"
#include "store/file/file_key.h"

namespace headrace::pack_detail {
namespace {

// Requests handed over at once: enough to make the cost of a hand-over small.
constexpr std::size_t kBatchRequests = 64;
// What a shard goes through on its way from directory to directory. 1 MiB stays in the second-level
// cache: 190,000 files of 16 KB a CPU second are read into it, 160,000 into 64 MiB (Xeon, tmpfs,
// November 2026).
constexpr std::uint64_t kLocalBufferBytes = 1 << 20;
// How long a worker waits for memory before it looks whether it should stop.
constexpr std::chrono::milliseconds kSlice{50};

// A store that takes nothing for this long, with nothing of ours in flight, is taken for broken.
constexpr std::chrono::seconds kRefusedLimit{60};
// Pause between attempts to hand over a request that the store has no room for.
constexpr std::chrono::milliseconds kRefusedPause{1};

Status cancelled() { return Status(Code::kCancelled, "pack: stopped"); }

Status refused(const Store& store) {
  return Status(Code::kExhausted, "pack: " + store.url() + " takes no requests");
}

/// Hands over one request, again and again while there is no room for it. Completions stay in the
/// store.
Status submit_one(Store& store, Request& request, std::stop_token stop) {
  const TimePoint limit = system_clock().now() + kRefusedLimit;
  while (store.submit({&request, 1}) == 0) {
    if (stop.stop_requested()) return cancelled();
    if (system_clock().now() >= limit) return refused(store);
    std::this_thread::sleep_for(kRefusedPause);
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<ShardWorker>> ShardWorker::create(const PackPlan& plan,
                                                         const MemoryShare& share, SlabPool& pool,
                                                         Store& source, Store& target) {
  HEADRACE_TRY_ASSIGN(auto source_handle, source.new_handle());
  HEADRACE_TRY_ASSIGN(auto target_handle, target.new_handle());
  auto worker = std::unique_ptr<ShardWorker>(
      new ShardWorker(plan, share, pool, std::move(source_handle), std::move(target_handle)));
  worker->completions_.resize(kBatchRequests);
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
  put->shard.shard = shard;
  put->name = plan_.object_name(shard);
  ShardFacts& facts = put->shard.facts;
  facts.stored_bytes = image_bytes;
  if (!plan_.hash.empty()) {
    HEADRACE_TRY_ASSIGN(Digest digest, Digest::create(plan_.hash));
    digest.update(image.bytes());
    facts.raw_hash = digest.finish();
  }
  if (plan_.is_compressed()) {
    HEADRACE_TRY_ASSIGN(Slab zip, compress(image.bytes(), facts, stop, finished));
    image = std::move(zip);
  }
  return submit_put(std::move(put), std::move(image), stop);
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
  FinishedShard done{.shard = shard, .facts = {}, .etag = {}};
  done.facts.stored_bytes = plan_.shards[shard].image_bytes;
  done.facts.raw_hash = writer.hash();
  struct stat info {};
  if (::fstat(file.fd(), &info) != 0) return errno_status(errno, "stat " + file.path());
  done.etag = file::etag_of(info);
  HEADRACE_TRY(file.publish(target_directory_ + "/" + plan_.object_name(shard)));
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
    if (is_last) HEADRACE_TRY(files_->check().annotate("pack"));
  }
  return {};
}

/// Takes up to a batch of ranges from `next` on, as far as the memory for reads goes.
Status ShardWorker::fill_batch(std::size_t& next) {
  while (next < ranges_.size() && batch_.size() < kBatchRequests) {
    const FileRange& range = ranges_[next];
    const std::uint64_t charged = SlabPool::charged_bytes(range.length_bytes);
    const bool is_idle = in_flight_ == 0 && batch_.empty();
    if (!is_idle && in_flight_bytes_ + charged > share_.read_bytes) break;
    auto slab = pool_.try_acquire(range.length_bytes);
    if (!slab && slab.error().code() == Code::kExhausted) {
      if (!is_idle) break;
      slab = pool_.acquire(range.length_bytes,
                           TimePoint::max());  // The shares add up: room comes without our help.
    }
    if (!slab) return std::move(slab).error();
    Request request;
    request.op = Op::kGet;
    request.key = plan_.files[range.file].key;
    request.etag = plan_.files[range.file].etag;
    request.offset_bytes = range.offset_bytes;
    request.length_bytes = range.length_bytes;
    request.slab = *std::move(slab);
    request.tag = next;
    batch_.push_back(std::move(request));
    in_flight_bytes_ += charged;
    ++next;
  }
  return {};
}

/// Hands over what has been gathered. True: more may be gathered before waiting.
Result<bool> ShardWorker::submit_batch(std::stop_token stop) {
  if (batch_.empty()) return false;
  if (in_flight_ == 0) {
    HEADRACE_TRY(submit_one(*source_, batch_.front(), stop));
    batch_.erase(batch_.begin());
    in_flight_ = 1;
  }
  const std::size_t accepted = source_->submit(batch_);
  batch_.erase(batch_.begin(), batch_.begin() + static_cast<std::ptrdiff_t>(accepted));
  in_flight_ += accepted;
  return batch_.empty() && in_flight_bytes_ < share_.read_bytes / 2;
}

Status ShardWorker::read_window(std::uint64_t shard, std::uint64_t begin,
                                std::span<std::byte> window, std::stop_token stop) {
  ranges_.clear();
  draw_window(plan_, shard, begin, window, share_.chunk_bytes, ranges_);
  if (files_) return read_locally(window, stop);
  std::size_t next = 0;
  for (std::size_t done = 0; done < ranges_.size();) {
    if (stop.stop_requested()) return cancelled();
    HEADRACE_TRY(fill_batch(next));
    HEADRACE_TRY_ASSIGN(const bool has_room, submit_batch(stop));
    if (has_room && next < ranges_.size()) continue;
    const std::size_t count = source_->wait(completions_, TimePoint::max(), stop);
    for (Completion& completion : std::span(completions_).first(count)) {
      if (!completion.status.ok()) return std::move(completion.status).annotate("pack");
      const FileRange& range = ranges_[completion.tag];
      place_bytes(plan_, range, completion.slab.bytes().first(range.length_bytes), window);
      in_flight_bytes_ -= SlabPool::charged_bytes(range.length_bytes);
      completion.slab = Slab();
    }
    in_flight_ -= count;
    done += count;
  }
  return {};
}

Status ShardWorker::submit_put(std::unique_ptr<Put> put, Slab slab, std::stop_token stop) {
  Request request;
  request.op = Op::kPut;
  request.key = put->name;
  request.length_bytes = put->shard.facts.stored_bytes;
  put->charged_bytes = SlabPool::charged_bytes(slab.bytes().size());
  request.slab = std::move(slab);
  request.tag = put->shard.shard;
  // The image itself has been given back where a compressed one took its place.
  making_bytes_ = 0;
  put_bytes_ += put->charged_bytes;
  puts_.push_back(std::move(put));
  Status status = submit_one(*target_, request, stop);
  if (!status.ok()) puts_.pop_back();
  return status;
}

/// Waits for one shard to arrive.
Status ShardWorker::wait_put(std::stop_token stop, std::vector<FinishedShard>& finished) {
  Completion completion;
  while (target_->wait({&completion, 1}, TimePoint::max(), stop) == 0) {
    if (stop.stop_requested()) return cancelled();
  }
  return take_put(std::move(completion), finished);
}

/// Takes the shards that have arrived, so that they are on record should the run be killed.
Status ShardWorker::reap_puts(std::vector<FinishedShard>& finished) {
  Completion completion;
  while (!puts_.empty() && target_->wait({&completion, 1}, TimePoint{}) == 1) {
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
  (*put)->shard.etag = std::move(completion.etag);
  if (completion.status.ok()) finished.push_back(std::move((*put)->shard));
  puts_.erase(put);
  return std::move(completion.status);
}

/// A shard that is larger than the worker's memory: file layouts without compression only.
Status ShardWorker::make_in_parts(std::uint64_t shard, std::stop_token stop,
                                  std::vector<FinishedShard>& finished) {
  HEADRACE_TRY(flush(stop, finished));
  FinishedShard done;
  done.shard = shard;
  done.facts.stored_bytes = plan_.shards[shard].image_bytes;
  const std::string name = plan_.object_name(shard);
  const CallOptions call{.stop = stop};
  HEADRACE_TRY_ASSIGN(const std::string upload_id, target_->create_upload(name, call));
  Status status = put_parts(done, upload_id, name, stop);
  if (!status.ok()) {
    static_cast<void>(target_->abort_upload(
        name, upload_id));  // Best effort: the first error is the one to report.
    return status;
  }
  finished.push_back(std::move(done));
  return {};
}

Status ShardWorker::put_parts(FinishedShard& done, const std::string& upload_id,
                              const std::string& name, std::stop_token stop) {
  const std::uint64_t image_bytes = done.facts.stored_bytes;
  Result<Digest> digest = Digest::create(plan_.hash.empty() ? "xxh3_64" : plan_.hash);
  if (!digest) return std::move(digest).error();
  std::vector<UploadedPart> parts;
  std::vector<FinishedShard> none;
  for (std::uint64_t begin = 0; begin < image_bytes; begin += share_.part_bytes) {
    const std::uint64_t length = std::min(share_.part_bytes, image_bytes - begin);
    making_bytes_ = 0;
    HEADRACE_TRY_ASSIGN(Slab part, acquire(length, stop, none));
    HEADRACE_TRY(read_window(done.shard, begin, part.bytes(), stop));
    if (!plan_.hash.empty()) digest->update(part.bytes());
    Request request;
    request.op = Op::kPutPart;
    request.key = name;
    request.upload_id = upload_id;
    request.part_number = static_cast<std::uint32_t>(parts.size() + 1);
    request.length_bytes = length;
    request.slab = std::move(part);
    HEADRACE_TRY(submit_one(*target_, request, stop));
    Completion completion;
    // Without stop: the request has views of this frame's strings; its deadline bounds the wait.
    while (target_->wait({&completion, 1}, TimePoint::max()) == 0) {
    }
    HEADRACE_TRY(std::move(completion.status));
    parts.push_back({.part_number = request.part_number, .etag = std::move(completion.etag)});
  }
  if (!plan_.hash.empty()) done.facts.raw_hash = digest->finish();
  auto object = target_->complete_upload(name, upload_id, parts, CallOptions{.stop = stop});
  if (!object) return std::move(object).error();
  done.etag = object->etag;
  return {};
}

}  // namespace headrace::pack_detail
