// A trace against the run that it stands for: the same bytes of the same objects.
#include "headrace/trace_reads.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "feed/fake_dataset.h"
#include "feed/loader_test_util.h"
#include "headrace/forwarding_store.h"

namespace headrace {
namespace {

using feed_test::FakeDataset;
using feed_test::FakeSpec;
using feed_test::soon;

using Ranges = std::multiset<std::pair<std::uint64_t, std::uint64_t>>;

/// Writes down ranges that are asked for, by object, as a cache sees them: a trace is what one is
/// asked for.
class ListingStore final : public ForwardingStore {
 public:
  ListingStore(std::unique_ptr<Store> inner, std::map<std::string, Ranges>& seen)
      : ForwardingStore(std::move(inner)), seen_(seen) {}
  std::size_t submit(std::span<Request> requests) override {
    struct Asked {
      std::string key;
      std::uint64_t offset = 0, length = 0;
    };
    std::vector<Asked> asked;
    for (const Request& request : requests)
      asked.push_back({std::string(request.key), request.offset_bytes, request.length_bytes});
    const std::size_t count = inner().submit(requests);
    for (std::size_t i = 0; i < count; ++i)
      seen_[asked[i].key].insert({asked[i].offset, asked[i].length});
    return count;
  }
  bool wants_foresight() const noexcept override { return true; }

 private:
  Result<std::unique_ptr<Store>> wrap(std::unique_ptr<Store>) override {
    return Status(Code::kUnsupported, "one handle");
  }
  std::map<std::string, Ranges>& seen_;
};

struct TraceCase {
  const char* name;
  FakeSpec spec;
  const char* order = "headrace";
};

class TraceReads : public ::testing::TestWithParam<TraceCase> {};

std::vector<std::uint32_t> many_blocks() {
  std::vector<std::uint32_t> samples(40);
  for (std::size_t i = 0; i < samples.size(); ++i)
    samples[i] = 5 + static_cast<std::uint32_t>(i * 7 % 9);
  return samples;
}

TEST_P(TraceReads, AreThoseOfTheRun) {
  FakeSpec spec = GetParam().spec;
  spec.block_samples = many_blocks();
  auto dataset = std::make_shared<FakeDataset>(spec);
  std::shared_ptr<SlabPool> pool = *SlabPool::create({.limit_bytes = std::uint64_t{64} << 20});
  auto store = dataset->make_store(*pool);
  LoaderOptions options{.batch_size = 6, .world_size = 2, .order = GetParam().order, .seed = 3};
  options.epoch_count = 2;
  auto trace = trace_reads(dataset, *store,
                           {.loader = options, .ranks = 2, .epochs = 2, .memory_bytes = 64 << 20});
  ASSERT_TRUE(trace) << trace.error().message();
  ASSERT_EQ(trace->ranks.size(), 2U);
  for (std::uint32_t rank = 0; rank < 2; ++rank) {
    std::map<std::string, Ranges> seen;
    LoaderOptions own = options;
    own.rank = rank;
    std::uint64_t batches = 0;
    {
      auto loader = Loader::create(
          dataset, std::make_unique<ListingStore>(*store->new_handle(), seen), pool, own);
      ASSERT_TRUE(loader) << loader.error().message();
      for (int epoch = 0; epoch < 2; ++epoch) {
        ASSERT_TRUE((*loader)->start_epoch().ok());
        while (true) {
          auto batch = (*loader)->next(soon());
          ASSERT_TRUE(batch) << batch.error().message();
          if (*batch == nullptr) break;
          ++batches;
        }
      }
    }
    Ranges run, traced;
    for (const auto& [key, ranges] : seen) run.insert(ranges.begin(), ranges.end());
    const ReadTrace::Rank& found = trace->ranks[rank];
    for (const ReadTrace::Read& read : found.reads)
      traced.insert({read.offset_bytes, read.length_bytes});
    EXPECT_EQ(traced, run);
    EXPECT_EQ(found.reads_before.size(), batches);
    EXPECT_EQ(found.epoch_batches, (std::vector<std::uint64_t>{batches / 2, batches / 2}));
    EXPECT_EQ(found.plans.size(), 2U);
    EXPECT_EQ(found.plans[0].since, 0U);
    EXPECT_TRUE(std::is_sorted(found.reads_before.begin(), found.reads_before.end()));
    // The last of the epochs foresees none after it.
    for (const ReadTrace::Foreseen& read : found.plans[1].reads)
      EXPECT_EQ(read.second, ReadTrace::kNever);
    for (std::size_t i = 0; i < found.reads.size(); ++i)
      EXPECT_LT(found.reads[i].need, batches) << "read " << i;
  }
}

FakeSpec plain() { return {}; }
FakeSpec compressed() { return {.is_compressed = true}; }
FakeSpec objects() { return {.is_object_per_sample = true}; }
FakeSpec unpacked() { return {.is_unpacked = true}; }

INSTANTIATE_TEST_SUITE_P(All, TraceReads,
                         ::testing::Values(TraceCase{"Plain", plain()},
                                           TraceCase{"Sequential", plain(), "sequential"},
                                           TraceCase{"Compressed", compressed()},
                                           TraceCase{"Objects", objects()},
                                           TraceCase{"Unpacked", unpacked()}),
                         [](const auto& instance) { return std::string(instance.param.name); });

TEST(TraceReadsErrors, NamesRanksThatAreNot) {
  auto dataset = std::make_shared<FakeDataset>(FakeSpec{});
  std::shared_ptr<SlabPool> pool = *SlabPool::create({.limit_bytes = std::uint64_t{64} << 20});
  auto store = dataset->make_store(*pool);
  const auto trace = trace_reads(dataset, *store, {.loader = {.world_size = 2}, .ranks = 3});
  ASSERT_FALSE(trace);
  EXPECT_EQ(trace.error().code(), Code::kInvalidArgument);
}

}  // namespace
}  // namespace headrace
