#include "io/uploader.h"

#include <gtest/gtest.h>

#include <cstring>
#include <stdexcept>
#include <string>

#include "headrace/forwarding_store.h"
#include "io/testing/own_memory_store.h"

namespace headrace::io {
namespace {

/// Gives completions out last first, fails a part, and notes what is done at the end.
class Contrary final : public ForwardingStore {
 public:
  explicit Contrary(std::unique_ptr<Store> inner) : ForwardingStore(std::move(inner)) {}
  Result<std::unique_ptr<Store>> wrap(std::unique_ptr<Store> handle) override {
    return std::unique_ptr<Store>(std::make_unique<Contrary>(std::move(handle)));
  }
  std::uint64_t bad_part = ~std::uint64_t{0};
  std::uint32_t aborted = 0;
  std::vector<UploadedPart> completed;

  std::size_t wait(std::span<Completion> out, TimePoint until, std::stop_token stop) override {
    Completion all[64];
    const std::size_t count =
        inner().wait(all, held_.empty() ? until : TimePoint{}, std::move(stop));
    for (std::size_t i = 0; i < count; ++i) {
      all[i].checksum = "sum " + std::to_string(all[i].tag);
      if (all[i].tag == bad_part) all[i].status = Status(Code::kUnavailable, "lost");
      held_.push_back(std::move(all[i]));
    }
    std::size_t given = 0;
    for (; given < out.size() && !held_.empty(); held_.pop_back())
      out[given++] = std::move(held_.back());
    return given;
  }
  Result<ObjectInfo> complete_upload(const std::string& key, const std::string& upload_id,
                                     std::span<const UploadedPart> parts,
                                     const CallOptions& call) override {
    completed.assign(parts.begin(), parts.end());
    return inner().complete_upload(key, upload_id, parts, call);
  }
  Status abort_upload(const std::string& key, const std::string& upload_id,
                      const CallOptions& call) override {
    ++aborted;
    return inner().abort_upload(key, upload_id, call);
  }

 private:
  std::vector<Completion> held_;
};

class UploaderTest : public ::testing::Test {
 protected:
  UploaderTest() {
    store_ = std::make_unique<Contrary>(testing::own_memory_store());
    pool_ = *SlabPool::create({.limit_bytes = 64 << 10});
  }
  Slab part(char letter, std::size_t size) {
    Slab slab = *pool_->try_acquire(size);
    std::memset(slab.bytes().data(), letter, size);
    return slab;
  }
  std::unique_ptr<Uploader> begin(Uploader::Options options = {}) {
    auto uploader = Uploader::begin(*store_, *store_, "key", std::move(options));
    EXPECT_TRUE(uploader);
    return *std::move(uploader);
  }
  bool is_there() { return store_->head("key").has_value(); }

  std::shared_ptr<SlabPool> pool_;
  std::unique_ptr<Contrary> store_;
};

TEST_F(UploaderTest, PartsAreInOrderWhateverTheOrderOfArrival) {
  const auto uploader = begin({.max_in_flight = 3});
  std::string expected;
  for (char letter = 'a'; letter < 'h'; ++letter) {
    ASSERT_TRUE(uploader->put(part(letter, 1000), 900).ok());
    EXPECT_LE(uploader->in_flight(), 3U);
    expected += std::string(900, letter);
  }
  EXPECT_FALSE(is_there());
  ASSERT_TRUE(uploader->finish());
  EXPECT_EQ(*read_object(*store_, *pool_, "key", 1 << 20), expected);
  ASSERT_EQ(store_->completed.size(), 7U);
  for (std::uint32_t i = 0; i < 7; ++i) {
    EXPECT_EQ(store_->completed[i].part_number, i + 1);
    EXPECT_EQ(store_->completed[i].size_bytes, 900U);
    EXPECT_EQ(store_->completed[i].checksum, "sum " + std::to_string(i + 1));
  }
  EXPECT_EQ(store_->aborted, 0U);
}

TEST_F(UploaderTest, APartThatFailsFailsTheUploadAndLeavesNothing) {
  store_->bad_part = 2;
  {
    const auto uploader = begin({.max_in_flight = 2});
    for (char letter = 'a'; letter < 'c'; ++letter)
      EXPECT_TRUE(uploader->put(part(letter, 100), 100).ok());
    EXPECT_EQ(uploader->finish().error().code(), Code::kUnavailable);
  }
  EXPECT_EQ(store_->aborted, 1U);
  EXPECT_FALSE(is_there());
  EXPECT_EQ(pool_->used_bytes(), 0U);
}

TEST_F(UploaderTest, AnExceptionOutOfAWaitLeavesNothing) {
  struct Interrupt {};
  {
    const auto uploader = begin({.pause = [] { throw Interrupt(); }});
    EXPECT_TRUE(uploader->put(part('a', 100), 100).ok());
  }
  EXPECT_EQ(store_->aborted, 1U);
  EXPECT_EQ(pool_->used_bytes(), 0U);
}

TEST_F(UploaderTest, MemoryOfPartsComesBackBeforeMoreIsAskedFor) {
  const auto uploader = begin({.max_in_flight = 100});
  for (int i = 0; i < 20; ++i) {
    auto slab = uploader->acquire(*pool_, 16 << 10);
    ASSERT_TRUE(slab) << slab.error().message();
    ASSERT_TRUE(uploader->put(*std::move(slab), 16 << 10).ok());
  }
  EXPECT_EQ(uploader->finish()->size_bytes, std::uint64_t{20} << 14);
  EXPECT_LE(pool_->peak_bytes(), pool_->limit_bytes());
}

TEST_F(UploaderTest, StopEndsIt) {
  std::stop_source stop;
  const auto uploader = begin({.call = {.stop = stop.get_token()}, .max_in_flight = 1});
  ASSERT_TRUE(uploader->put(part('a', 100), 100).ok());
  stop.request_stop();
  EXPECT_EQ(uploader->put(part('b', 100), 100).code(), Code::kCancelled);
}

}  // namespace
}  // namespace headrace::io
