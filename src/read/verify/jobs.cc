#include "read/verify/jobs.h"

#include <algorithm>

namespace headrace::detail {
namespace {

// Blocks of one job where nothing is hashed: enough to read ahead, few enough to share a shard.
constexpr std::uint32_t kBlocksPerJob = 16;

class JobPlanner {
 public:
  explicit JobPlanner(const Dataset& dataset) : dataset_(dataset) {}

  std::vector<VerifyJob> plan() {
    std::uint32_t block = 0;
    for (std::uint32_t s = 0; s < dataset_.shard_count(); ++s) {
      const std::uint32_t first = block;
      while (block < dataset_.block_count() && dataset_.block(block).shard == s) ++block;
      if (!is_broken(dataset_.shard(s))) plan_shard(dataset_.shard(s), first, block);
    }
    return std::move(jobs_);
  }

 private:
  // One without bytes: opening has said what is wrong with it.
  bool is_broken(const Dataset::Shard& shard) const {
    const auto broken = dataset_.broken_shards();
    return std::any_of(broken.begin(), broken.end(), [&](const BrokenShard& b) {
      return b.sample_count > 0 && b.first_sample == shard.first_sample &&
             b.sample_count == shard.sample_count;
    });
  }

  void plan_shard(const Dataset::Shard& shard, std::uint32_t first, std::uint32_t end) {
    const bool is_hashed = !shard.hashes.empty();
    const bool is_in_order = lie_in_order(shard, first, end);
    const VerifyObject object{shard.key, shard.etag, shard.size_bytes, shard.hashes};
    if (is_hashed)
      jobs_.push_back({object, VerifyJob::Kind::kObject, first, is_in_order ? end : first});
    if (is_hashed && is_in_order) return;
    const std::uint32_t step = is_in_order ? kBlocksPerJob : 1;
    const VerifyJob::Kind kind = is_in_order ? VerifyJob::Kind::kBlocks : VerifyJob::Kind::kApart;
    for (std::uint32_t block = first; block < end; block += step)
      jobs_.push_back({object, kind, block, std::min(block + step, end)});
  }

  bool lie_in_order(const Dataset::Shard& shard, std::uint32_t first, std::uint32_t end) {
    std::uint64_t at = 0;
    for (std::uint32_t block = first; block < end; ++block) {
      extents_.clear();
      dataset_.append_extents(block, 0, dataset_.block(block).sample_count, extents_);
      if (extents_.empty()) continue;
      if (extents_.size() > 1 || extents_[0].key != shard.key || extents_[0].offset_bytes < at)
        return false;
      at = extents_[0].offset_bytes + extents_[0].length_bytes;
    }
    return at <= shard.size_bytes;
  }

  const Dataset& dataset_;
  std::vector<VerifyJob> jobs_;
  std::vector<Extent> extents_;
};

}  // namespace

std::vector<VerifyJob> plan_verify(const Dataset& dataset) { return JobPlanner(dataset).plan(); }

}  // namespace headrace::detail
