#include "dataset_reader.h"

#include <algorithm>
#include <cstring>
#include <map>

namespace headrace {
namespace {

constexpr std::chrono::milliseconds kSlice{50};
constexpr std::size_t kJobsInFlight = 64;
// Neighbours of a plain block are read together up to this size: above it a request costs less than
// what it carries.
constexpr std::uint64_t kMostRunBytes = std::uint64_t{1} << 20;
/// Blocks kept ready for the next call, within the memory limit: neighbours, and a few places that
/// a caller goes back and forth between.
constexpr std::size_t kMaxKept = 8;
/// Together at most this part of the limit (one is always kept): others read with the same memory.
constexpr std::uint64_t kKeptShare = 2;

}  // namespace

std::vector<DatasetReader::Job> DatasetReader::plan(
    std::span<const std::uint64_t> positions) const {
  std::vector<Job> jobs;
  std::map<std::uint32_t, std::size_t> job_of_block;
  std::vector<Extent> extents;
  // Whether neighbours of a plain block are better read together.
  const auto is_one_read = [&](std::uint32_t block, std::uint32_t begin, std::uint32_t end) {
    extents.clear();
    return dataset_->append_extents(block, begin, end, extents) <= kMostRunBytes &&
           extents.size() == 1;
  };
  for (std::size_t i = 0; i < positions.size(); ++i) {
    const std::uint32_t block_index = dataset_->block_of(positions[i]);
    const Block block = dataset_->block(block_index);
    if (dataset_->is_compressed(block_index)) {
      const auto [it, is_new] = job_of_block.try_emplace(block_index, jobs.size());
      if (is_new) jobs.push_back({block_index, 0, block.sample_count, {}});
      jobs[it->second].indices.push_back(i);
    } else {
      const auto in_block = static_cast<std::uint32_t>(positions[i] - block.first_sample);
      const bool follows =
          !jobs.empty() && jobs.back().block == block_index && jobs.back().end == in_block;
      if (follows && is_one_read(block_index, jobs.back().begin, in_block + 1)) {
        ++jobs.back().end;
        jobs.back().indices.push_back(i);
      } else {
        jobs.push_back({block_index, in_block, in_block + 1, {i}});
      }
    }
  }
  return jobs;
}

Status DatasetReader::cut(const Job& job, const BlockBytes& bytes,
                          std::span<const std::uint64_t> positions, const Sink& sink) const {
  const std::uint64_t first = dataset_->block(job.block).first_sample;
  std::vector<ColumnBytes> columns(dataset_->columns().size());
  for (const std::size_t index : job.indices) {
    const auto in_block = static_cast<std::uint32_t>(positions[index] - first);
    HEADRACE_TRY(dataset_->cut(bytes, in_block, columns));
    HEADRACE_TRY(sink(index, columns));
  }
  return {};
}

bool DatasetReader::forget_oldest() {
  std::shared_ptr<const Ready> dying;  // Outside of the lock: a decoded block may take the GIL.
  std::lock_guard lock(mutex_);
  if (kept_.empty()) return false;
  dying = std::move(kept_.back());
  kept_.pop_back();
  return true;
}

Result<Slab> DatasetReader::acquire(std::size_t size_bytes, const Pause& pause) {
  size_bytes = std::max<std::size_t>(size_bytes, 1);
  do {
    auto slab = client_->pool()->try_acquire(size_bytes);
    if (slab || slab.error().code() != Code::kExhausted) return slab;
  } while (forget_oldest());
  return client_->acquire(size_bytes, pause);
}

Result<Slab> DatasetReader::fetch_job(const Job& job, const Pause& pause) {
  std::vector<Extent> extents;
  const std::uint64_t size = dataset_->append_extents(job.block, job.begin, job.end, extents);
  HEADRACE_TRY_ASSIGN(Slab slab, acquire(size, pause));
  for (const Extent& extent : extents) {
    HEADRACE_TRY(client_->fetch(
        extent.key, extent.etag, extent.offset_bytes,
        slab.bytes().subspan(extent.target_offset_bytes, extent.length_bytes), pause));
  }
  return slab;
}

std::shared_ptr<const DatasetReader::Ready> DatasetReader::find_kept(std::uint32_t block) {
  std::lock_guard lock(mutex_);
  const auto found = std::find_if(kept_.begin(), kept_.end(),
                                  [&](const auto& ready) { return ready->block == block; });
  if (found == kept_.end()) return nullptr;
  kept_.splice(kept_.begin(), kept_, found);
  return kept_.front();
}

void DatasetReader::keep(std::shared_ptr<const Ready> ready) {
  // Outside of the lock: a decoded block may take the GIL when it goes.
  std::list<std::shared_ptr<const Ready>> dying;
  std::lock_guard lock(mutex_);
  kept_.push_front(std::move(ready));
  std::uint64_t bytes = 0;
  auto first_dying = kept_.begin();
  for (std::size_t count = 0; first_dying != kept_.end(); ++first_dying, ++count) {
    bytes += (*first_dying)->size_bytes();
    const bool fits = count < kMaxKept && bytes <= client_->pool()->limit_bytes() / kKeptShare;
    if (count > 0 && !fits) break;
  }
  dying.splice(dying.begin(), kept_, first_dying, kept_.end());
}

Result<std::shared_ptr<const DatasetReader::Ready>> DatasetReader::make_ready(const Job& job,
                                                                              const Pause& pause) {
  if (auto kept = find_kept(job.block)) return kept;
  const std::uint64_t stored_bytes = dataset_->block(job.block).stored_bytes;
  HEADRACE_TRY_ASSIGN(Slab stored, fetch_job(job, pause));
  const std::span<const std::byte> bytes = stored.bytes().first(stored_bytes);
  HEADRACE_TRY(dataset_->verify(job.block, bytes));
  auto ready = std::make_shared<Ready>();
  ready->block = job.block;
  HEADRACE_TRY_ASSIGN(ready->raw, acquire(dataset_->block(job.block).raw_bytes, pause));
  if (dataset_->is_decoded(job.block)) {
    const std::uint64_t workspace = dataset_->decode_workspace_bytes(job.block, bytes);
    HEADRACE_TRY_ASSIGN(const Slab room, acquire(workspace, pause));  // Counted, never touched.
    ready->arena.emplace(*client_->pool(), std::move(ready->raw));
    HEADRACE_TRY_ASSIGN(ready->decoded, dataset_->decode(job.block, bytes, *ready->arena));
  } else {
    const std::span<std::byte> raw = ready->raw.bytes().first(dataset_->block(job.block).raw_bytes);
    HEADRACE_TRY(dataset_->decompress(job.block, bytes, raw));
  }
  keep(ready);
  return std::shared_ptr<const Ready>(std::move(ready));
}

Status DatasetReader::read_apart(const Job& job, std::uint64_t size_bytes,
                                 std::span<const std::uint64_t> positions, const Sink& sink,
                                 const Pause& pause) {
  Slab slab;
  if (size_bytes > 0) {
    HEADRACE_TRY_ASSIGN(slab, fetch_job(job, pause));
  }
  return cut(job,
             {.block = job.block,
              .begin = job.begin,
              .end = job.end,
              .bytes = slab.bytes().first(size_bytes)},
             positions, sink);
}

Status DatasetReader::read_plain(std::span<const Job> jobs,
                                 std::span<const std::uint64_t> positions, const Sink& sink,
                                 const Pause& pause) {
  StoreClient::Lease handle(*client_);
  HEADRACE_TRY(handle.take());
  std::size_t next = 0;
  std::size_t in_flight = 0;
  std::vector<Extent> extents;
  while (next < jobs.size() || in_flight > 0) {
    while (next < jobs.size() && in_flight < kJobsInFlight) {
      extents.clear();
      const std::uint64_t size =
          dataset_->append_extents(jobs[next].block, jobs[next].begin, jobs[next].end, extents);
      if (size == 0 || extents.size() != 1) {
        // It waits for memory, which the reads in flight may hold.
        if (size > 0 && in_flight > 0) break;
        HEADRACE_TRY(read_apart(jobs[next], size, positions, sink, pause));
        ++next;
        continue;
      }
      auto slab = in_flight > 0 ? client_->pool()->try_acquire(size) : acquire(size, pause);
      if (!slab && in_flight > 0) break;
      if (!slab) return std::move(slab).error();
      Request request;
      request.key = extents[0].key;
      request.etag = extents[0].etag;
      request.offset_bytes = extents[0].offset_bytes;
      request.length_bytes = extents[0].length_bytes;
      request.slab = *std::move(slab);
      request.slab_offset_bytes = extents[0].target_offset_bytes;
      request.tag = next;
      if (handle->submit({&request, 1}) == 0) {
        if (in_flight > 0) break;
        return Status(Code::kCancelled, dataset_->url() + ": the dataset was closed");
      }
      ++next;
      ++in_flight;
    }
    if (in_flight == 0) continue;
    Completion done[16];
    const std::size_t count = handle->wait(done, system_clock().now() + kSlice);
    if (count == 0) pause();
    for (Completion& completion : std::span(done, count)) {
      --in_flight;
      HEADRACE_TRY(std::move(completion.status));
      const Job& job = jobs[completion.tag];
      HEADRACE_TRY(cut(job,
                       {.block = job.block,
                        .begin = job.begin,
                        .end = job.end,
                        .bytes = completion.slab.bytes()},
                       positions, sink));
      completion.slab = Slab();
    }
  }
  handle.finish();
  return {};
}

Status DatasetReader::read(std::span<const std::uint64_t> positions, const Sink& sink,
                           const Pause& pause) {
  std::vector<Job> jobs = plan(positions);
  const auto plain_end = std::stable_partition(jobs.begin(), jobs.end(), [&](const Job& job) {
    return !dataset_->is_compressed(job.block);
  });
  const auto plain_count = static_cast<std::size_t>(plain_end - jobs.begin());
  if (plain_count > 0)
    HEADRACE_TRY(read_plain(std::span(jobs).first(plain_count), positions, sink, pause));
  for (const Job& job : std::span(jobs).subspan(plain_count)) {
    HEADRACE_TRY_ASSIGN(const auto ready, make_ready(job, pause));
    BlockBytes bytes{.block = job.block, .begin = job.begin, .end = job.end, .bytes = {}};
    bytes.decoded = ready->decoded.get();
    if (bytes.decoded == nullptr)
      bytes.bytes = ready->raw.bytes().first(dataset_->block(job.block).raw_bytes);
    HEADRACE_TRY(cut(job, bytes, positions, sink));
  }
  return {};
}

}  // namespace headrace
