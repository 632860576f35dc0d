#include "feed/block_reads.h"

#include <algorithm>

#include "feed/block_needs.h"
#include "order/laned_needs.h"

namespace headrace::feed {
namespace {

/// Of a block: what its parts and their reads may come to, some 20 bytes of a plan each.
constexpr std::size_t kMostNeeds = 4096;

}  // namespace

std::vector<BlockRead> find_block_reads(const std::shared_ptr<const EpochOrder>& order,
                                        const Dataset& dataset, const BatchPlan& plan,
                                        NeedIndex::Ranks ranks) {
  std::vector<BlockRead> reads;
  if (const LaneOrder* lanes = order->lanes()) {
    const std::uint32_t shift = batch_shift(plan);
    for (const LaneNeed& need : find_lane_needs(*lanes, plan, ranks))
      reads.push_back({need.block, need.begin, need.end, std::uint64_t{need.first} << shift});
    return reads;
  }
  const auto needs = first_needs(order, dataset.block_count(), plan, ranks);
  for (std::uint32_t block = 0; block < needs.size(); ++block) {
    if (needs[block] != kNever)
      reads.push_back({block, 0, dataset.block(block).sample_count, needs[block]});
  }
  return reads;
}

std::vector<BlockPart> find_parts(std::span<const BlockRead> reads) {
  std::vector<std::uint32_t> cuts;
  for (const BlockRead& read : reads) cuts.insert(cuts.end(), {read.begin, read.end});
  std::sort(cuts.begin(), cuts.end());
  cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
  std::vector<BlockPart> parts;
  if (cuts.size() * reads.size() > kMostNeeds) {
    parts.push_back({.begin = cuts.front(), .end = cuts.back(), .needs = {}});
    for (const BlockRead& read : reads) parts.back().needs.push_back(read.batch);
    std::sort(parts.back().needs.begin(), parts.back().needs.end());
    return parts;
  }
  for (std::size_t i = 0; i + 1 < cuts.size(); ++i)
    parts.push_back({.begin = cuts[i], .end = cuts[i + 1], .needs = {}});
  for (const BlockRead& read : reads) {
    auto part =
        std::lower_bound(parts.begin(), parts.end(), read.begin,
                         [](const BlockPart& p, std::uint32_t begin) { return p.begin < begin; });
    for (; part != parts.end() && part->begin < read.end; ++part) part->needs.push_back(read.batch);
  }
  for (BlockPart& part : parts) std::sort(part.needs.begin(), part.needs.end());
  return parts;
}

}  // namespace headrace::feed
