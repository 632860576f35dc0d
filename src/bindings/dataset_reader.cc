#include "dataset_reader.h"

#include <algorithm>
#include <cstring>
#include <map>

namespace headrace {
namespace {

constexpr std::chrono::milliseconds kSlice{50};
constexpr std::size_t kJobsInFlight = 64;

}  // namespace

std::vector<DatasetReader::Job> DatasetReader::plan(
    std::span<const std::uint64_t> positions) const {
  std::vector<Job> jobs;
  std::map<std::uint32_t, std::size_t> job_of_block;
  for (std::size_t i = 0; i < positions.size(); ++i) {
    const std::uint32_t block_index = dataset_->block_of(positions[i]);
    const Block block = dataset_->block(block_index);
    if (dataset_->is_compressed(block_index)) {
      const auto [it, is_new] = job_of_block.try_emplace(block_index, jobs.size());
      if (is_new) jobs.push_back({block_index, 0, block.sample_count, {}});
      jobs[it->second].indices.push_back(i);
    } else {
      const auto in_block = static_cast<std::uint32_t>(positions[i] - block.first_sample);
      jobs.push_back({block_index, in_block, in_block + 1, {i}});
    }
  }
  return jobs;
}

Status DatasetReader::cut(const Job& job, std::span<const std::byte> bytes,
                          std::span<const std::uint64_t> positions, const Sink& sink) const {
  const std::uint64_t first = dataset_->block(job.block).first_sample;
  std::vector<ColumnBytes> columns(dataset_->columns().size());
  for (const std::size_t index : job.indices) {
    const auto in_block = static_cast<std::uint32_t>(positions[index] - first);
    HEADRACE_TRY(dataset_->cut({job.block, job.begin, job.end, bytes}, in_block, columns));
    HEADRACE_TRY(sink(index, columns));
  }
  return {};
}

Result<Slab> DatasetReader::fetch_job(const Job& job, const Pause& pause) {
  std::vector<Extent> extents;
  const std::uint64_t size = dataset_->append_extents(job.block, job.begin, job.end, extents);
  HEADRACE_TRY_ASSIGN(Slab slab, client_->acquire(std::max<std::uint64_t>(size, 1), pause));
  for (const Extent& extent : extents) {
    HEADRACE_TRY(client_->fetch(
        extent.key, extent.etag, extent.offset_bytes,
        slab.bytes().subspan(extent.target_offset_bytes, extent.length_bytes), pause));
  }
  return slab;
}

Result<std::shared_ptr<DatasetReader::Inflated>> DatasetReader::inflate(const Job& job,
                                                                        const Pause& pause) {
  std::shared_ptr<Inflated> kept;
  {
    std::lock_guard lock(mutex_);
    if (kept_ && kept_->block == job.block) return kept_;
    kept.swap(kept_);
  }
  kept.reset();  // Its memory may be what the next block needs.
  HEADRACE_TRY_ASSIGN(Slab stored, fetch_job(job, pause));
  auto inflated = std::make_shared<Inflated>();
  inflated->block = job.block;
  HEADRACE_TRY_ASSIGN(inflated->raw, client_->acquire(dataset_->block(job.block).raw_bytes, pause));
  HEADRACE_TRY(dataset_->decompress(job.block, stored.bytes(), inflated->raw.bytes()));
  std::lock_guard lock(mutex_);
  kept_ = inflated;
  return inflated;
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
      if (extents.size() != 1) {
        HEADRACE_TRY_ASSIGN(const Slab slab, fetch_job(jobs[next], pause));
        HEADRACE_TRY(cut(jobs[next], slab.bytes().first(size), positions, sink));
        ++next;
        continue;
      }
      auto slab =
          in_flight > 0 ? client_->pool()->try_acquire(size) : client_->acquire(size, pause);
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
      HEADRACE_TRY(cut(jobs[completion.tag], completion.slab.bytes(), positions, sink));
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
    HEADRACE_TRY_ASSIGN(const auto inflated, inflate(job, pause));
    HEADRACE_TRY(cut(job, inflated->raw.bytes(), positions, sink));
  }
  return {};
}

}  // namespace headrace
