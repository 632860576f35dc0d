// What is told of the future against the future: the reads of a run, replayed with a cache that
// goes by its plans, fetch hardly more than one that knows all of them (Belady's rule).
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "feed/fake_dataset.h"
#include "headrace/mixture.h"
#include "headrace/simulate_cache.h"
#include "headrace/trace_reads.h"

namespace headrace {
namespace {

using feed_test::FakeDataset;
using feed_test::FakeSpec;

constexpr std::uint64_t kEpochs = 3;
constexpr std::uint32_t kBatch = 16;
constexpr std::uint64_t kMemoryBytes = std::uint64_t{64} << 20;
constexpr std::uint64_t kCellBytes = 4096;

/// Bytes that the best of all caches fetches in all epochs but the first, with room for so many: at
/// each moment it keeps what is read again soonest. Counted by cells, of which a read has those
/// that begin in it.
std::uint64_t fewest_bytes(const ReadTrace::Rank& rank, std::uint64_t room_bytes) {
  using Cell = std::pair<std::uint32_t, std::uint64_t>;
  std::vector<Cell> cells;
  std::size_t start = 0;
  for (std::size_t i = 0; i < rank.reads.size(); ++i) {
    const ReadTrace::Read& read = rank.reads[i];
    if (i == rank.reads_before[rank.epoch_batches[0] - 1]) start = cells.size();
    const std::uint64_t end = (read.offset_bytes + read.length_bytes + kCellBytes - 1) / kCellBytes;
    for (auto c = (read.offset_bytes + kCellBytes - 1) / kCellBytes; c < end; ++c)
      cells.emplace_back(read.object, c);
  }
  std::vector<std::size_t> next(cells.size());
  std::map<Cell, std::size_t> last;
  for (std::size_t i = cells.size(); i-- > 0;) {
    const auto [found, is_new] = last.try_emplace(cells[i], cells.size() + i);
    next[i] = found->second;
    found->second = i;
  }
  std::map<Cell, std::size_t> held;
  std::set<std::pair<std::size_t, Cell>> by_need;
  std::uint64_t fetched = 0;
  for (std::size_t i = 0; i < cells.size(); ++i) {
    if (const auto found = held.find(cells[i]); found != held.end()) {
      by_need.erase({found->second, cells[i]});
    } else if (i >= start) {
      fetched += kCellBytes;
    }
    held[cells[i]] = next[i];
    by_need.emplace(next[i], cells[i]);
    if (held.size() <= room_bytes / kCellBytes) continue;
    held.erase(by_need.rbegin()->second);
    by_need.erase(std::prev(by_need.end()));
  }
  return fetched;
}

struct ForesightCase {
  const char* name;
  std::vector<std::uint32_t> blocks;  ///< Of each source.
  std::vector<double> proportions;
};

class Foresight : public ::testing::TestWithParam<ForesightCase> {};

TEST_P(Foresight, IsNearlyAsGoodAsKnowingAll) {
  FakeSpec spec{.text_bytes = 50'000, .is_versioned = true};
  spec.block_samples.clear();
  std::vector<MixtureInput> inputs;
  std::vector<MixturePrints> prints;
  std::vector<std::string> names;
  LoaderOptions options{.batch_size = kBatch, .seed = 3};
  for (const std::uint32_t count : GetParam().blocks) {
    options.source_blocks.push_back(static_cast<std::uint32_t>(spec.block_samples.size()));
    const std::vector<std::uint32_t> samples(count, 20);
    spec.block_samples.insert(spec.block_samples.end(), samples.begin(), samples.end());
    names.push_back("source-" + std::to_string(names.size()));
    prints.push_back({"content " + names.back(), "versions " + names.back()});
    inputs.push_back({.name = names.back(), .prints = prints.back(), .block_samples = samples});
    inputs.back().window_bytes = 1'000'000;
  }
  MixtureRequest request;
  request.seed = 3;
  request.schedule = {{0, GetParam().proportions}};
  request.global_batch = kBatch;
  request.memory_bytes = kMemoryBytes;
  auto mixture = plan_mixture(request, inputs);
  ASSERT_TRUE(mixture) << mixture.error().message();
  auto source = MixtureSource::create(*std::move(mixture), names, prints);
  ASSERT_TRUE(source) << source.error().message();
  options.order_source = *std::move(source);
  options.epoch_count = kEpochs;
  auto dataset = std::make_shared<FakeDataset>(spec);
  StoreOptions nothing;
  nothing.url = "memory://fake";
  const auto store = open_memory_store(nothing);
  ASSERT_TRUE(store);
  auto trace = trace_reads(dataset, **store,
                           {.loader = options, .epochs = kEpochs, .memory_bytes = kMemoryBytes});
  ASSERT_TRUE(trace) << trace.error().message();
  for (const std::uint64_t share : {25U, 50U, 75U}) {
    const std::uint64_t limit = trace->file_bytes * share / 100;
    const auto ours = simulate_cache(*trace, limit, CachePolicy::kNextUse, {});
    const std::uint64_t fetched = ours.epoch_fetched_bytes[1] + ours.epoch_fetched_bytes[2];
    const std::uint64_t best = fewest_bytes(trace->ranks[0], trace->data_bytes * share / 100);
    // A sixty-fourth of the cache goes at a time, and is empty for a while.
    EXPECT_LE(fetched, best + 2 * trace->data_bytes * 4 / 100) << share << " percent";
  }
}

INSTANTIATE_TEST_SUITE_P(Mixtures, Foresight,
                         ::testing::Values(ForesightCase{"Halves", {200, 200}, {1, 1}},
                                           ForesightCase{"SmallAndOften", {360, 40}, {1, 1}},
                                           ForesightCase{"LargeAndSeldom", {360, 40}, {1, 5}}),
                         [](const auto& instance) { return std::string(instance.param.name); });

}  // namespace
}  // namespace headrace
