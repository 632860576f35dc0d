#include "headrace/fill_cache.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "base/temporary_directory.h"
#include "headrace/forwarding_store.h"
#include "store/memory/memory_store.h"

namespace headrace {
namespace {

constexpr std::uint64_t kSampleBytes = 20'000;
constexpr int kSamples = 60;

/// Counts the bytes of gets.
class CountingStore final : public ForwardingStore {
 public:
  using Bytes = std::atomic<std::uint64_t>;
  CountingStore(std::unique_ptr<Store> inner, std::shared_ptr<Bytes> bytes)
      : ForwardingStore(std::move(inner)), bytes_(std::move(bytes)) {}
  std::size_t submit(std::span<Request> requests) override {
    std::vector<std::uint64_t> lengths;
    for (const Request& request : requests) lengths.push_back(request.length_bytes);
    const std::size_t count = inner().submit(requests);
    for (std::size_t i = 0; i < count; ++i) bytes_->fetch_add(lengths[i]);
    return count;
  }

 private:
  Result<std::unique_ptr<Store>> wrap(std::unique_ptr<Store> handle) override {
    return std::unique_ptr<Store>(std::make_unique<CountingStore>(std::move(handle), bytes_));
  }
  const std::shared_ptr<Bytes> bytes_;
};

/// Objects of one sample each, behind a cache.
class FillCache : public ::testing::Test {
 protected:
  void SetUp() override {
    StoreOptions options;
    options.url = "memory://fill";
    origin_ = *open_memory_store(options);
    pool_ = *SlabPool::create({.limit_bytes = std::uint64_t{64} << 20});
    for (int i = 0; i < kSamples; ++i) {
      std::string bytes(kSampleBytes, static_cast<char>('a' + i % 26));
      ASSERT_TRUE(write_object(*origin_, *pool_, std::to_string(100 + i) + ".bin", bytes));
    }
    auto opened =
        Dataset::open(*origin_, *pool_,
                      {.format = Format::kRaw, .block_bytes = 65536, .use_stored_index = false});
    ASSERT_TRUE(opened) << opened.error().message();
    dataset_ = *std::move(opened);
    ASSERT_GT(dataset_->block_count(), 8U);
  }
  void open_cache(std::uint64_t limit = 0, std::uint64_t buffer = std::uint64_t{64} << 20) {
    store_.reset();
    cache_.reset();
    auto cache =
        Cache::open({.directory = directory_.path(), .limit_bytes = limit, .buffer_bytes = buffer});
    ASSERT_TRUE(cache) << cache.error().message();
    cache_ = *std::move(cache);
    store_ = cache_reads(std::make_unique<CountingStore>(*origin_->new_handle(), fetched_), cache_);
  }
  FillReport fill(const FillOptions& options = {}) {
    auto report = fill_cache(*dataset_, *store_, *cache_, options);
    EXPECT_TRUE(report) << report.error().message();
    return report ? *report : FillReport{};
  }
  std::uint64_t all_bytes() const { return kSamples * kSampleBytes; }
  bool holds(std::uint32_t block) {
    std::vector<Extent> extents;
    dataset_->append_extents(block, 0, dataset_->block(block).sample_count, extents);
    for (const Extent& e : extents)
      if (!store_->holds(e.key, e.etag, e.offset_bytes, e.length_bytes)) return false;
    return true;
  }

  const TemporaryDirectory directory_;
  const std::shared_ptr<CountingStore::Bytes> fetched_ = std::make_shared<CountingStore::Bytes>(0);
  std::shared_ptr<SlabPool> pool_;
  std::unique_ptr<Store> origin_;
  std::shared_ptr<const Dataset> dataset_;
  std::shared_ptr<Cache> cache_;
  std::unique_ptr<Store> store_;
};

TEST_F(FillCache, BringsEverythingAndReadsNothingThatIsThere) {
  open_cache();
  const FillReport first = fill({.is_all_required = true});
  EXPECT_EQ(first.total_bytes, all_bytes());
  EXPECT_EQ(first.fetched_bytes, all_bytes());
  EXPECT_EQ(first.missing_bytes, 0U);
  EXPECT_EQ(first.file_bytes, cache_->usage()->file_bytes);
  EXPECT_EQ(fetched_->load(), all_bytes());
  // Another process, or this one after a kill.
  open_cache();
  const FillReport again = fill({.is_all_required = true});
  EXPECT_EQ(again.held_bytes, all_bytes());
  EXPECT_EQ(again.fetched_bytes, 0U);
  EXPECT_EQ(fetched_->load(), all_bytes());
  MetricList metrics;
  cache_->append_metrics(metrics);
  for (const Metric& metric : metrics) {
    if (metric.name == "cache.hits") {
      EXPECT_EQ(metric.value, 0) << "held extents are not read";
    }
  }
}

TEST_F(FillCache, RefusesBeforeItReadsWhatDoesNotFit) {
  open_cache(all_bytes() / 2);
  const auto report = fill_cache(*dataset_, *store_, *cache_, {.is_all_required = true});
  ASSERT_FALSE(report);
  EXPECT_EQ(report.error().code(), Code::kExhausted);
  const std::string message(report.error().message());
  const std::uint64_t file_bytes = kSamples * cache_->stored_bytes(kSampleBytes);
  EXPECT_NE(message.find(std::to_string(file_bytes)), std::string::npos) << message;
  EXPECT_NE(message.find(std::to_string(all_bytes() / 2)), std::string::npos) << message;
  EXPECT_EQ(fetched_->load(), 0U);
}

TEST_F(FillCache, FillsWhatFitsInTheOrderOfNeed) {
  open_cache(all_bytes() / 2);
  // The last block is needed first.
  std::vector<std::uint64_t> needs(dataset_->block_count());
  for (std::size_t i = 0; i < needs.size(); ++i) needs[i] = needs.size() - i;
  const FillReport report = fill({.wants = order_wants(needs)});
  EXPECT_GT(report.missing_bytes, all_bytes() * 2 / 5);
  EXPECT_LT(report.missing_bytes, all_bytes() * 7 / 10);
  // Beyond what fits it tries a few, and stops.
  EXPECT_LT(report.fetched_bytes, all_bytes() * 7 / 10);
  EXPECT_TRUE(holds(dataset_->block_count() - 1));
  EXPECT_FALSE(holds(0));
  EXPECT_LE(cache_->usage()->file_bytes, all_bytes() / 2);
}

TEST_F(FillCache, ASmallBufferSlowsItDownAndLosesNothing) {
  open_cache(0, 2 * kSampleBytes + 10'000);
  const FillReport report = fill({.is_all_required = true, .memory_bytes = 4 * kSampleBytes});
  EXPECT_EQ(report.missing_bytes, 0U);
  EXPECT_LE(fetched_->load(), all_bytes() * 11 / 10);
}

TEST_F(FillCache, SharesMeetInTheMiddle) {
  open_cache();
  std::vector<std::uint64_t> order;
  // One share alone does its own part first, and then all of the rest.
  const FillReport report = fill({.share = 1, .share_count = 3, .is_all_required = true});
  EXPECT_EQ(report.fetched_bytes, all_bytes());
  EXPECT_EQ(fill({.share = 0, .share_count = 3, .is_all_required = true}).fetched_bytes, 0U);
}

TEST_F(FillCache, WaitsForLeaveToRead) {
  open_cache();
  std::atomic<bool> may{false};
  std::atomic<int> asked{0};
  BackgroundFill fill(dataset_, *store_->new_handle(), cache_,
                      [&](const std::stop_token&) -> Result<FillOptions> {
                        FillOptions options;
                        options.may_read = [&] {
                          asked.fetch_add(1);
                          return may.load();
                        };
                        return options;
                      });
  while (asked.load() < 3) std::this_thread::yield();
  EXPECT_EQ(fetched_->load(), 0U);
  may.store(true);
  while (!fill.is_over()) std::this_thread::yield();
  EXPECT_TRUE(fill.status().ok()) << fill.status().message();
  EXPECT_EQ(fill.report().fetched_bytes, all_bytes());
}

TEST_F(FillCache, EndsWhenItIsToldTo) {
  open_cache();
  BackgroundFill fill(dataset_, *store_->new_handle(), cache_,
                      [&](const std::stop_token&) -> Result<FillOptions> {
                        FillOptions options;
                        options.may_read = [] { return false; };
                        return options;
                      });
  fill.stop();
  EXPECT_TRUE(fill.is_over());
  EXPECT_EQ(fill.status().code(), Code::kCancelled);
}

TEST_F(FillCache, NeedsAStoreWithACache) {
  open_cache();
  const auto report = fill_cache(*dataset_, *origin_, *cache_, {});
  ASSERT_FALSE(report);
  EXPECT_EQ(report.error().code(), Code::kInvalidArgument);
}

TEST_F(FillCache, PinsHoldAgainstWhatIsNeeded) {
  open_cache(all_bytes() / 2);
  ASSERT_TRUE(cache_->pin("memory://fill/10").ok());  // The first ten objects.
  std::vector<std::uint64_t> needs(dataset_->block_count());
  for (std::size_t i = 0; i < needs.size(); ++i) needs[i] = needs.size() - i;
  fill();
  EXPECT_TRUE(holds(0));
  // Needed sooner than all that is there, but for the pinned.
  std::vector<std::uint64_t> urgent(dataset_->block_count(), UINT64_MAX);
  for (std::size_t i = urgent.size() / 3; i < urgent.size(); ++i) urgent[i] = 0;
  const FillReport report = fill({.wants = order_wants(urgent)});
  EXPECT_GT(report.missing_bytes, 0U);
  EXPECT_TRUE(holds(0)) << "pinned";
  EXPECT_TRUE(*cache_->unpin("memory://fill/10"));
  // A pinned one makes room for itself.
  ASSERT_TRUE(cache_->pin("memory://fill/159").ok());
  std::vector<std::uint64_t> last(dataset_->block_count(), UINT64_MAX);
  last.back() = 1000;
  fill({.wants = order_wants(last)});
  std::vector<Extent> extents;
  dataset_->append_extents(dataset_->block_count() - 1, 0,
                           dataset_->block(dataset_->block_count() - 1).sample_count, extents);
  EXPECT_TRUE(store_->holds("159.bin", extents.back().etag, 0, kSampleBytes));
}

}  // namespace
}  // namespace headrace
