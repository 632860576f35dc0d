#include "headrace/quarantine.h"

#include <algorithm>
#include <string_view>
#include <unordered_map>

namespace headrace {
namespace feed {
namespace {

constexpr std::string_view kIndexKey = "index.hri";

Status bad(const Dataset& dataset, const QuarantineEntry& entry, std::string_view what) {
  return Status(Code::kInvalidArgument, "quarantine: object '" + entry.key + "', position " +
                                            std::to_string(entry.position) + ": " +
                                            std::string(what) + " " + dataset.url() +
                                            "; is this the list of another dataset?");
}

/// Finds the ranges of one list.
class Finder {
 public:
  explicit Finder(const Dataset& dataset) : dataset_(dataset) {}

  Status add(const QuarantineEntry& entry) {
    if (entry.position < 0) return add_shard(entry);
    const auto begin = static_cast<std::uint64_t>(entry.position);
    const std::uint64_t count = dataset_.sample_count();
    if (begin >= count || entry.sample_count > count - begin)
      return bad(dataset_, entry, "lies beyond the " + std::to_string(count) + " samples of");
    const std::uint32_t block = dataset_.block_of(begin);
    if (!entry.key.empty() && dataset_.shard(dataset_.block(block).shard).key != entry.key &&
        !lies_in(entry.key, block, begin)) {
      return bad(dataset_, entry, "is not where that sample lies in");
    }
    ranges_.push_back({begin, begin + entry.sample_count});
    return {};
  }
  std::vector<SampleRange> take() { return joined(std::move(ranges_)); }

 private:
  Status add_shard(const QuarantineEntry& entry) {
    if (entry.key == kIndexKey) return {};
    if (shards_.empty()) {
      for (std::uint32_t i = 0; i < dataset_.shard_count(); ++i)
        shards_.emplace(dataset_.shard(i).key, i);
    }
    const auto found = shards_.find(entry.key);
    if (found == shards_.end() && is_left_out(entry.key)) return {};
    if (found == shards_.end()) return bad(dataset_, entry, "is no shard of");
    const Dataset::Shard shard = dataset_.shard(found->second);
    ranges_.push_back({shard.first_sample, shard.first_sample + shard.sample_count});
    return {};
  }

  bool is_left_out(const std::string& key) const {
    const auto broken = dataset_.broken_shards();
    return std::any_of(broken.begin(), broken.end(),
                       [&](const BrokenShard& shard) { return shard.key == key; });
  }

  bool lies_in(std::string_view key, std::uint32_t block, std::uint64_t position) {
    const auto index = static_cast<std::uint32_t>(position - dataset_.block(block).first_sample);
    extents_.clear();
    dataset_.append_extents(block, index, index + 1, extents_);
    return std::any_of(extents_.begin(), extents_.end(),
                       [&](const Extent& extent) { return extent.key == key; });
  }

  const Dataset& dataset_;
  std::unordered_map<std::string_view, std::uint32_t> shards_;
  std::vector<Extent> extents_;
  std::vector<SampleRange> ranges_;
};

}  // namespace
}  // namespace feed

std::vector<SampleRange> joined(std::vector<SampleRange> ranges) {
  std::sort(ranges.begin(), ranges.end(),
            [](const SampleRange& a, const SampleRange& b) { return a.begin < b.begin; });
  std::vector<SampleRange> out;
  for (const SampleRange& range : ranges) {
    if (range.begin >= range.end) continue;
    if (!out.empty() && range.begin <= out.back().end) {
      out.back().end = std::max(out.back().end, range.end);
    } else {
      out.push_back(range);
    }
  }
  return out;
}

Result<std::vector<SampleRange>> find_quarantined(const Dataset& dataset,
                                                  std::span<const QuarantineEntry> entries) {
  feed::Finder finder(dataset);
  for (const QuarantineEntry& entry : entries) HEADRACE_TRY(finder.add(entry));
  return finder.take();
}

}  // namespace headrace
