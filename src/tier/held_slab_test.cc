// Extents that are written from the very slab that their reader has.
#include <gtest/gtest.h>

#include <algorithm>
#include <future>
#include <memory>
#include <thread>
#include <vector>

#include "base/temporary_directory.h"
#include "mem/slab_lender.h"
#include "tier/disk_cache.h"

namespace headrace::tier {
namespace {

constexpr std::size_t kSize = 300'000;

/// Whoever asks for the time waits, but for the thread that made it: so does a writer, before it
/// makes a file.
class HeldUpClock final : public Clock {
 public:
  TimePoint now() const noexcept override {
    if (std::this_thread::get_id() != maker_) gate_.wait();
    return system_clock().now();
  }
  std::chrono::sys_seconds wall_now() const noexcept override { return system_clock().wall_now(); }
  void open() { promise_.set_value(); }

 private:
  const std::thread::id maker_ = std::this_thread::get_id();
  std::promise<void> promise_;
  const std::shared_future<void> gate_ = promise_.get_future().share();
};

class HeldSlab : public ::testing::Test {
 protected:
  static constexpr std::byte kContent{42};

  std::shared_ptr<DiskCache> open(std::shared_ptr<const SealKey> key = nullptr,
                                  std::uint64_t buffer_bytes = 1 << 20) {
    auto cache = DiskCache::create({.directory = directory_.path(),
                                    .key = std::move(key),
                                    .buffer_bytes = buffer_bytes,
                                    .clock = &clock_});
    EXPECT_TRUE(cache) << cache.error().message();
    return cache ? *std::move(cache) : nullptr;
  }
  /// Keeps part of a slab, and changes it before a writer has come to it.
  void keep_and_change(DiskCache& cache, std::size_t offset) {
    Slab slab = *pool_->try_acquire(kSize + offset);
    mem::SlabLender lender(*pool_, slab);
    const Slab part = lender.lend(offset, kSize);
    std::fill(part.bytes().begin(), part.bytes().end(), kContent);
    cache.keep(info_, part.bytes(), {}, part);
    std::fill(part.bytes().begin(), part.bytes().end(), std::byte{0});
    clock_.open();
    cache.flush();
  }
  bool has(DiskCache& cache) const {
    std::vector<std::byte> out(kSize);
    bool is_found = false;
    cache.read(info_, out, TimePoint::max(),
               [&](Tier::Found found, std::uint64_t) { is_found = found == Tier::Found::kAll; });
    EXPECT_TRUE(!is_found || out == std::vector<std::byte>(kSize, kContent)) << "a wrong result";
    return is_found;
  }

  const ExtentInfo info_{.name = {object_id("h:1", "s3://b/k", "e"), 0, kSize},
                         .object_size_bytes = kSize,
                         .url = "s3://b/k",
                         .etag = "e"};
  TemporaryDirectory directory_;
  HeldUpClock clock_;
  std::unique_ptr<SlabPool> pool_ =
      *SlabPool::create({.limit_bytes = 1 << 20, .most_held_bytes = 1 << 20});
};

TEST_F(HeldSlab, IsWrittenFromWhenItsReaderHasGivenItBack) {
  const auto cache = open();
  {
    Slab slab = *pool_->try_acquire(kSize);
    mem::SlabLender lender(*pool_, slab);
    const Slab part = lender.lend(0, kSize);
    std::fill(part.bytes().begin(), part.bytes().end(), kContent);
    cache->keep(info_, part.bytes(), {}, part);
  }
  EXPECT_EQ(pool_->used_bytes(), 0U) << "its reader has the room";
  Slab other = *pool_->try_acquire(kSize);
  std::fill(other.bytes().begin(), other.bytes().end(), std::byte{0});
  clock_.open();
  cache->flush();
  EXPECT_TRUE(has(*cache));
}

TEST_F(HeldSlab, TakesOfTheRoomToWriteUntilItIsWritten) {
  constexpr std::uint64_t kRoom = 500'000;
  const auto cache = open(nullptr, kRoom);
  Slab slab = *pool_->try_acquire(kSize);
  mem::SlabLender lender(*pool_, slab);
  const Slab part = lender.lend(0, kSize);
  std::fill(part.bytes().begin(), part.bytes().end(), kContent);
  cache->keep(info_, part.bytes(), {}, part);
  const std::uint64_t taken = SlabPool::charged_bytes(kSize) + FileParts::kPagesBytes;
  EXPECT_EQ(cache->write_room_bytes(), kRoom - taken);
  EXPECT_FALSE(cache->writer().buffer(kSize)) << "for a value, either";
  clock_.open();
  cache->flush();
  EXPECT_EQ(cache->write_room_bytes(), kRoom);
  EXPECT_TRUE(cache->writer().buffer(kSize));
  EXPECT_TRUE(has(*cache));
}

TEST_F(HeldSlab, WhoChangesItMeanwhileSpoilsTheFileAndNoRead) {
  const auto cache = open();
  keep_and_change(*cache, 0);
  EXPECT_FALSE(has(*cache));
  EXPECT_FALSE(cache->holds(info_.name)) << "deleted";
}

TEST_F(HeldSlab, APartThatBeginsAtNoPageIsCopied) {
  const auto cache = open();
  keep_and_change(*cache, 100);
  EXPECT_TRUE(has(*cache));
}

TEST_F(HeldSlab, WhatIsEncryptedIsCopied) {
  const auto cache = open(std::make_shared<const SealKey>(SealKey::Bytes{std::byte{1}}));
  keep_and_change(*cache, 0);
  EXPECT_TRUE(has(*cache));
}

TEST_F(HeldSlab, WithMoreThanMayBeHeldItIsCopied) {
  pool_ = *SlabPool::create({.limit_bytes = 1 << 20, .most_held_bytes = kSize - 1});
  const auto cache = open();
  keep_and_change(*cache, 0);
  EXPECT_TRUE(has(*cache));
}

}  // namespace
}  // namespace headrace::tier
