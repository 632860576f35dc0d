// Samples by position, for people and tests rather than for training: in any order, by several
// threads, each call with a lease of its own.
//
// - Plain neighbours are read together; compressed and unpacked blocks are read once a call,
//   whatever the number of their samples asked for, and the last few are kept for the next call.
// - Kept blocks give way to any need of memory (acquire()), so they cost others nothing. They are
//   destroyed outside of the lock, as an unpacked block may take the GIL when it goes.
// - A sample whose bytes make no sense is doubtful, not wrong: it is read again, over a fresh
//   connection, until the same bytes have come twice. Good samples of the same read were handed
//   out already, and are not handed out again.
#include "headrace/sample_reader.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <utility>

#include "headrace/range_fetcher.h"
#include "read/ready_block.h"
#include "read/request_plan.h"

namespace headrace {
namespace {

/// Of the memory, what stored bytes of blocks under way may take; the rest is for unpacking them.
constexpr std::uint64_t kAheadShare = 4;
// Neighbours of a plain block are read together up to this size: above it a request costs less than
// what it carries.
constexpr std::uint64_t kMostRunBytes = std::uint64_t{1} << 20;
/// Blocks kept ready for the next call, within the memory limit: neighbours, and a few places that
/// a caller goes back and forth between.
constexpr std::size_t kMaxKept = 8;
/// Together at most this part of the limit (one is always kept): others read with the same memory.
constexpr std::uint64_t kKeptShare = 2;

}  // namespace

std::vector<SampleReader::Job> SampleReader::plan(std::span<const std::uint64_t> positions) const {
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

Status SampleReader::cut(const Job& job, std::span<const std::byte> bytes, Call& call) const {
  return cut(job, {.block = job.block, .begin = job.begin, .end = job.end, .bytes = bytes}, call);
}

Status SampleReader::cut(const Job& job, const BlockBytes& bytes, Call& call) const {
  const std::uint64_t first = dataset_->block(job.block).first_sample;
  std::vector<ColumnBytes> columns(dataset_->columns().size());
  for (const std::size_t index : job.indices) {
    const auto in_block = static_cast<std::uint32_t>(call.positions[index] - first);
    Status status = dataset_->cut(bytes, in_block, columns);
    if (status.code() == Code::kCorrupt) {
      call.doubtful.push_back(index);
      continue;
    }
    HEADRACE_TRY(std::move(status));
    HEADRACE_TRY(call.sink(index, columns));
  }
  return {};
}

bool SampleReader::forget_oldest() {
  std::shared_ptr<const Ready> dying;  // Outside of the lock: an unpacked block may take the GIL.
  std::lock_guard lock(mutex_);
  if (kept_.empty()) return false;
  dying = std::move(kept_.back());
  kept_.pop_back();
  return true;
}

Result<Slab> SampleReader::acquire(std::size_t size_bytes, const Pause& pause) {
  size_bytes = std::max<std::size_t>(size_bytes, 1);
  do {
    auto slab = client_->pool()->try_acquire(size_bytes);
    if (slab || slab.error().code() != Code::kExhausted) return slab;
  } while (forget_oldest());
  return client_->acquire(size_bytes, pause);
}

Result<Slab> SampleReader::fetch_job(const Job& job, bool is_fresh, const Pause& pause) {
  std::vector<Extent> extents;
  const std::uint64_t size = dataset_->append_extents(job.block, job.begin, job.end, extents);
  if (size == 0) return Slab();
  HEADRACE_TRY_ASSIGN(Slab slab, acquire(size, pause));
  HEADRACE_TRY(client_->read(read_options(pause), [&](RangeFetcher& fetcher) {
    return read::fetch_extents(fetcher, extents, client_->part_bytes(), is_fresh, slab.bytes());
  }));
  return slab;
}

RangeFetcher::Options SampleReader::read_options(const Pause& pause) {
  RangeFetcher::Options options = client_->read_options(pause);
  options.acquire = [this, pause](std::size_t size_bytes) { return acquire(size_bytes, pause); };
  return options;
}

std::shared_ptr<const SampleReader::Ready> SampleReader::find_kept(std::uint32_t block) {
  std::lock_guard lock(mutex_);
  const auto found = std::find_if(kept_.begin(), kept_.end(),
                                  [&](const auto& ready) { return ready->block == block; });
  if (found == kept_.end()) return nullptr;
  kept_.splice(kept_.begin(), kept_, found);
  return kept_.front();
}

void SampleReader::forget(std::uint32_t block) {
  std::shared_ptr<const Ready> dying;  // Outside of the lock, as above.
  std::lock_guard lock(mutex_);
  const auto found = std::find_if(kept_.begin(), kept_.end(),
                                  [&](const auto& ready) { return ready->block == block; });
  if (found == kept_.end()) return;
  dying = std::move(*found);
  kept_.erase(found);
}

void SampleReader::keep(std::shared_ptr<const Ready> ready) {
  // Outside of the lock: an unpacked block may take the GIL when it goes.
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

SampleReader::Made SampleReader::read_block(const Job& job, bool is_fresh,
                                            std::optional<std::uint64_t>& digest,
                                            const Pause& pause) {
  HEADRACE_TRY_ASSIGN(Slab stored, fetch_job(job, is_fresh, pause));
  const auto bytes = stored.bytes().first(dataset_->block(job.block).stored_bytes);
  Made made = make_block(job.block, bytes, pause);
  if (is_fresh || (!made && made.error().code() == Code::kCorrupt))
    digest = SecondLook::digest_of(bytes);
  return made;
}

SampleReader::Made SampleReader::make_block(std::uint32_t block, std::span<const std::byte> bytes,
                                            const Pause& pause) {
  HEADRACE_TRY(dataset_->verify(block, bytes));
  auto ready = std::make_shared<Ready>();
  ready->block = block;
  HEADRACE_TRY_ASSIGN(ready->raw, acquire(dataset_->block(block).raw_bytes, pause));
  Slab room;  // Counted, never touched.
  if (dataset_->is_unpacked(block)) {
    HEADRACE_TRY_ASSIGN(room, acquire(dataset_->unpack_workspace_bytes(block, bytes), pause));
    ready->arena.emplace(*client_->pool(), std::move(ready->raw));
  }
  HEADRACE_TRY_ASSIGN(ready->unpacked, read::make_ready(*dataset_, block, bytes, ready->raw.bytes(),
                                                        ready->arena ? &*ready->arena : nullptr));
  return std::shared_ptr<const Ready>(std::move(ready));
}

BlockBytes SampleReader::bytes_of(const Ready& ready) const {
  return read::ready_bytes(*dataset_, ready.block, ready.raw.bytes(), ready.unpacked.get());
}

Status SampleReader::read_again(std::size_t index, const Call& call) {
  const std::uint32_t number = dataset_->block_of(call.positions[index]);
  const Block block = dataset_->block(number);
  const auto in_block = static_cast<std::uint32_t>(call.positions[index] - block.first_sample);
  const bool is_whole = dataset_->is_compressed(number);
  const Job job{number, is_whole ? 0 : in_block, is_whole ? block.sample_count : in_block + 1, {}};
  std::vector<ColumnBytes> columns(dataset_->columns().size());
  if (auto kept = find_kept(number)) {  // The sample before it was doubtful, too.
    if (dataset_->cut(bytes_of(*kept), in_block, columns).ok()) return call.sink(index, columns);
  }
  Status taken;  // Apart from those of reading: no other bytes will change it.
  Status read = read::read_surely(
      [&](bool is_fresh, std::optional<std::uint64_t>& digest) -> Status {
        std::shared_ptr<const Ready> ready;
        Slab slab;
        BlockBytes bytes{.block = number, .begin = job.begin, .end = job.end, .bytes = {}};
        if (is_whole) {
          HEADRACE_TRY_ASSIGN(ready, read_block(job, is_fresh, digest, call.pause));
          bytes = bytes_of(*ready);
        } else {
          std::vector<Extent> extents;
          const auto size = dataset_->append_extents(number, job.begin, job.end, extents);
          HEADRACE_TRY_ASSIGN(slab, fetch_job(job, is_fresh, call.pause));
          bytes.bytes = slab.bytes().first(std::min<std::size_t>(size, slab.bytes().size()));
          digest = SecondLook::digest_of(bytes.bytes);
        }
        HEADRACE_TRY(dataset_->cut(bytes, in_block, columns));
        if (ready) keep(ready);
        taken = call.sink(index, columns);
        return {};
      },
      /*is_fresh=*/true);
  HEADRACE_TRY(std::move(read));
  return taken;
}

Status SampleReader::read_apart(const Job& job, Call& call) {
  HEADRACE_TRY_ASSIGN(const Slab slab, fetch_job(job, false, call.pause));
  return cut(job, slab.bytes(), call);
}

bool SampleReader::start(RangeFetcher& fetcher, const Job& job, std::uint64_t tag) const {
  std::vector<Extent> extents;
  const std::uint64_t size = dataset_->append_extents(job.block, job.begin, job.end, extents);
  if (size == 0 || extents.size() != 1) return false;
  // Copied once more, but by several connections, and compared where the store tells a sum.
  if (read::is_cut(read::cut_rule(fetcher.store().traits()), extents[0])) return false;
  fetcher.start({.key = extents[0].key,
                 .etag = extents[0].etag,
                 .offset_bytes = extents[0].offset_bytes,
                 .length_bytes = extents[0].length_bytes,
                 .tag = tag,
                 .slab_offset_bytes = extents[0].target_offset_bytes});
  return true;
}

Status SampleReader::read_plain(std::span<const Job> jobs, Call& call) {
  std::vector<std::size_t> apart;
  const auto read_all = [&](RangeFetcher& fetcher) -> Status {
    for (std::size_t i = 0; i < jobs.size(); ++i) {
      if (!start(fetcher, jobs[i], i)) apart.push_back(i);
    }
    while (fetcher.pending() > 0) {
      HEADRACE_TRY_ASSIGN(const RangeData data, fetcher.next());
      HEADRACE_TRY(cut(jobs[data.tag], data.slab.bytes(), call));
    }
    return {};
  };
  HEADRACE_TRY(client_->read(read_options(call.pause), read_all));
  for (const std::size_t i : apart) HEADRACE_TRY(read_apart(jobs[i], call));
  return {};
}

Status SampleReader::read_blocks(std::span<const Job> jobs, Call& call,
                                 std::vector<const Job*>& left) {
  RangeFetcher::Options options = read_options(call.pause);
  options.max_bytes = client_->pool()->limit_bytes() / kAheadShare;
  const auto read_all = [&](RangeFetcher& fetcher) -> Status {
    for (std::size_t i = 0; i < jobs.size(); ++i) {
      if (find_kept(jobs[i].block) || !start(fetcher, jobs[i], i)) left.push_back(&jobs[i]);
    }
    while (fetcher.pending() > 0) {
      HEADRACE_TRY_ASSIGN(RangeData data, fetcher.next());
      const Job& job = jobs[data.tag];
      auto ready = make_block(job.block, data.bytes(), call.pause);
      data.slab = Slab();
      if (!ready) {
        const Code code = ready.error().code();
        if (code != Code::kCorrupt && code != Code::kExhausted) return std::move(ready).error();
        left.push_back(&job);
        continue;
      }
      const std::size_t doubtful_count = call.doubtful.size();
      HEADRACE_TRY(cut(job, bytes_of(**ready), call));
      if (call.doubtful.size() == doubtful_count) keep(*std::move(ready));
    }
    return {};
  };
  return client_->read(std::move(options), read_all);
}

Status SampleReader::read_whole(const Job& job, Call& call) {
  auto ready = find_kept(job.block);
  if (!ready) {
    HEADRACE_TRY_ASSIGN(ready,
                        read::read_surely([&](bool is_fresh, std::optional<std::uint64_t>& digest) {
                          return read_block(job, is_fresh, digest, call.pause);
                        }));
    keep(ready);
  }
  return cut(job, bytes_of(*ready), call);
}

Status SampleReader::read_doubtful(Call& call) {
  for (const std::size_t index : std::exchange(call.doubtful, {}))
    HEADRACE_TRY(read_again(index, call));
  return {};
}

Status SampleReader::read(std::span<const std::uint64_t> positions, const Sink& sink,
                          const Pause& pause) {
  std::vector<Job> jobs = plan(positions);
  // Plain ones first, all at once. Whole blocks follow; those that do not come with the others, for
  // whatever reason, one by one: then all memory is theirs.
  const auto plain_end = std::stable_partition(jobs.begin(), jobs.end(), [&](const Job& job) {
    return !dataset_->is_compressed(job.block);
  });
  const auto plain_count = static_cast<std::size_t>(plain_end - jobs.begin());
  Call call{.positions = positions, .sink = sink, .pause = pause};
  if (plain_count > 0) HEADRACE_TRY(read_plain(std::span(jobs).first(plain_count), call));
  HEADRACE_TRY(read_doubtful(call));
  const auto whole = std::span(jobs).subspan(plain_count);
  std::vector<const Job*> left;
  if (whole.size() > 1) {
    HEADRACE_TRY(read_blocks(whole, call, left));
    HEADRACE_TRY(read_doubtful(call));
  } else if (!whole.empty()) {
    left.push_back(&whole.front());
  }
  for (const Job* job : left) {
    HEADRACE_TRY(read_whole(*job, call));
    // Not what was kept of it.
    if (!call.doubtful.empty()) forget(job->block);
    HEADRACE_TRY(read_doubtful(call));
  }
  return {};
}

}  // namespace headrace
