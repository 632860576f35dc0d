#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "headrace/probe.h"
#include "store/memory/memory_store.h"

namespace headrace {
namespace {

class FetchProbeTest : public testing::Test {
 protected:
  void SetUp() override {
    StoreOptions options;
    options.url = "memory://probe";
    store_ = *open_store(options, Environment());
    pool_ = *SlabPool::create({});
    for (const std::uint64_t size : {100'000U, 64'000U, 0U}) {
      const std::string key = "object-" + std::to_string(size);
      auto written = write_object(*store_, *pool_, key, std::string(size, 'x'));
      ASSERT_TRUE(written) << written.error().message();
      objects_.push_back(*std::move(written));
      objects_.back().key = key;
    }
  }
  std::unique_ptr<SlabPool> pool_;
  std::unique_ptr<Store> store_;
  std::vector<ObjectInfo> objects_;
};

TEST_F(FetchProbeTest, ReadsUntilItsByteLimit) {
  FetchProbeOptions options;
  options.part_bytes = 16 << 10;
  options.in_flight = 4;
  options.duration = std::chrono::hours(1);
  options.max_bytes = 10 << 20;
  auto result = probe_fetch(*store_, *pool_, objects_, options);
  ASSERT_TRUE(result) << result.error().message();
  EXPECT_GE(result->bytes, options.max_bytes);
  EXPECT_LT(result->bytes, options.max_bytes + options.part_bytes);
  EXPECT_GE(result->requests * options.part_bytes, result->bytes);
  EXPECT_EQ(result->failures, 0U);
  EXPECT_GE(result->request_p99_us, result->request_p50_us);
  EXPECT_EQ(pool_->used_bytes(), 0U);
}

TEST_F(FetchProbeTest, StopsWhenTheStoreAlwaysFails) {
  std::vector<ObjectInfo> missing = {objects_[0]};
  missing[0].key = "nothing-here";
  FetchProbeOptions options;
  options.duration = std::chrono::milliseconds(1);
  auto result = probe_fetch(*store_, *pool_, missing, options);
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code(), Code::kNotFound);
  EXPECT_EQ(pool_->used_bytes(), 0U);
}

TEST_F(FetchProbeTest, RefusesWhatCannotBeRead) {
  FetchProbeOptions options;
  EXPECT_EQ(probe_fetch(*store_, *pool_, {&objects_[2], 1}, options).error().code(),
            Code::kInvalidArgument);
  options.in_flight = 0;
  EXPECT_EQ(probe_fetch(*store_, *pool_, objects_, options).error().code(), Code::kInvalidArgument);
  options.in_flight = 1;
  options.part_bytes = std::uint64_t{1} << 40;
  EXPECT_FALSE(probe_fetch(*store_, *pool_, objects_, options));
}

TEST_F(FetchProbeTest, EndsOnRequest) {
  std::stop_source stop;
  stop.request_stop();
  FetchProbeOptions options;
  options.duration = std::chrono::hours(1);
  auto result = probe_fetch(*store_, *pool_, objects_, options, stop.get_token());
  EXPECT_EQ(result.error().code(), Code::kCancelled);
  EXPECT_EQ(pool_->used_bytes(), 0U);
}

}  // namespace
}  // namespace headrace
