// A place for extents whose store takes nothing for a while.
#include "tier/store_cache.h"

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "headrace/forwarding_store.h"
#include "store/memory/memory_store.h"

namespace headrace::tier {
namespace {

using Outcome = RemoteCache::Outcome;

/// What the store's handle and the test share.
struct Gate {
  std::atomic<bool> is_open{false};
  std::atomic<int> refusals{0};
  std::mutex mutex;
  std::vector<std::string> taken;  ///< Keys.
};

class GatedStore final : public ForwardingStore {
 public:
  GatedStore(std::unique_ptr<Store> inner, std::shared_ptr<Gate> gate)
      : ForwardingStore(std::move(inner)), gate_(std::move(gate)) {}
  std::size_t submit(std::span<Request> requests) override {
    if (!gate_->is_open.load()) {
      gate_->refusals.fetch_add(1);
      return 0;
    }
    std::lock_guard lock(gate_->mutex);
    for (const Request& request : requests) gate_->taken.emplace_back(request.key);
    return inner().submit(requests);
  }

 private:
  Result<std::unique_ptr<Store>> wrap(std::unique_ptr<Store> handle) override {
    return std::unique_ptr<Store>(std::make_unique<GatedStore>(std::move(handle), gate_));
  }
  const std::shared_ptr<Gate> gate_;
};

class StoreCacheTest : public ::testing::Test {
 protected:
  static constexpr std::uint64_t kMemory = 64 << 10;

  StoreCacheTest() {
    StoreOptions options;
    options.url = "memory://hot";
    cache_ = *open_store_cache(std::make_unique<GatedStore>(*open_memory_store(options), gate_),
                               kMemory);
  }
  /// Asks for an extent that is not there.
  std::future<Outcome> get(std::uint64_t object, TimePoint deadline = TimePoint::max()) {
    auto end = std::make_shared<std::promise<Outcome>>();
    RemoteCache::Get get;
    get.extent.name = {.object = {0, object}, .offset_bytes = 0, .length_bytes = out_.size()};
    get.out = out_;
    get.deadline = deadline;
    get.done = [end](Outcome outcome, std::uint64_t) { end->set_value(outcome); };
    cache_->get(std::move(get));
    return end->get_future();
  }
  void refused(int times) const {
    while (gate_->refusals.load() < times) std::this_thread::yield();
  }

  const std::shared_ptr<Gate> gate_ = std::make_shared<Gate>();
  std::vector<std::byte> out_ = std::vector<std::byte>(kMemory / 2);
  std::unique_ptr<RemoteCache> cache_;
};

TEST_F(StoreCacheTest, OffersAgainInOrderWhatTheStoreRefused) {
  std::vector<std::future<Outcome>> ends;
  for (std::uint64_t i = 1; i <= 3; ++i) ends.push_back(get(i));
  refused(3);
  gate_->is_open = true;
  for (auto& end : ends) EXPECT_EQ(end.get(), Outcome::kMissing);
  ASSERT_EQ(gate_->taken.size(), 3U);
  for (std::uint64_t i = 1; i <= 3; ++i)
    EXPECT_NE(gate_->taken[i - 1].find(std::to_string(i) + "-0-8000"), std::string::npos)
        << gate_->taken[i - 1];
}

TEST_F(StoreCacheTest, WhoeverWaitsIsToldInTimeThoughTheStoreTakesNothing) {
  for (std::uint64_t i = 1; i <= 3; ++i) {
    const TimePoint soon = system_clock().now() + std::chrono::milliseconds(2);
    EXPECT_EQ(get(i, soon).get(), Outcome::kResting);
  }
  // They gave back their memory, of which there is enough for one.
  gate_->is_open = true;
  EXPECT_EQ(get(4).get(), Outcome::kMissing);
}

}  // namespace
}  // namespace headrace::tier
