#include "headrace/forwarding_store.h"

#include <gtest/gtest.h>

#include "store/memory/memory_store.h"

namespace headrace {
namespace {

/// The example of docs/extending.md: counts gets and refuses to delete.
class CountingStore final : public ForwardingStore {
 public:
  CountingStore(std::unique_ptr<Store> inner, std::shared_ptr<std::uint64_t> gets)
      : ForwardingStore(std::move(inner)), gets_(std::move(gets)) {}

  std::size_t submit(std::span<Request> requests) override {
    const std::size_t count = ForwardingStore::submit(requests);
    for (const Request& request : requests.first(count)) *gets_ += request.op == Op::kGet;
    return count;
  }

 private:
  Result<std::unique_ptr<Store>> wrap(std::unique_ptr<Store> handle) override {
    return std::unique_ptr<Store>(std::make_unique<CountingStore>(std::move(handle), gets_));
  }
  Status before_call(std::string_view call, const std::string& key) override {
    return call == "DELETE" ? Status(Code::kDenied, object_url(key) + ": nothing is deleted here")
                            : Status();
  }

  const std::shared_ptr<std::uint64_t> gets_;
};

class ForwardingStoreTest : public testing::Test {
 protected:
  ForwardingStoreTest() {
    StoreOptions options;
    options.url = "memory://forwarded";
    store_ = std::make_unique<CountingStore>(*open_memory_store(options), gets_);
    EXPECT_TRUE(write_object(*store_, *pool_, "a/x", "0123456789"));
  }

  std::shared_ptr<SlabPool> pool_ = *SlabPool::create({});
  std::shared_ptr<std::uint64_t> gets_ = std::make_shared<std::uint64_t>(0);
  std::unique_ptr<Store> store_;
};

TEST_F(ForwardingStoreTest, ChangesOnlyWhatIsOverridden) {
  EXPECT_EQ(*read_object(*store_, *pool_, "a/x", 100), "0123456789");
  EXPECT_EQ(*gets_, 1U);
  EXPECT_EQ(store_->head("a/x")->size_bytes, 10U);
  EXPECT_EQ(store_->list({.prefix = "a/", .delimiter = {}, .continuation = {}})->objects.size(),
            1U);
  EXPECT_EQ(store_->copy("a/x", "a/y")->size_bytes, 10U);
  const auto upload = store_->create_upload("a/z");
  ASSERT_TRUE(upload);
  EXPECT_TRUE(store_->abort_upload("a/z", *upload).ok());
  EXPECT_EQ(store_->list_parts("a/z", *upload).error().code(), Code::kUnsupported);
  EXPECT_EQ(store_->url(), "memory://forwarded");
  EXPECT_EQ(store_->local_directory(), "");
}

TEST_F(ForwardingStoreTest, IsAskedBeforeEachCall) {
  EXPECT_EQ(store_->remove("a/x").code(), Code::kDenied);
  const std::vector<std::string> keys = {"a/x", "a/y"};
  const auto results = store_->remove_many(keys);
  ASSERT_EQ(results.size(), 2U);
  for (const Status& status : results) EXPECT_EQ(status.code(), Code::kDenied);
  EXPECT_TRUE(store_->head("a/x")) << "nothing was deleted";
}

TEST_F(ForwardingStoreTest, WrapsEveryHandle) {
  const auto handle = store_->new_handle();
  ASSERT_TRUE(handle);
  EXPECT_TRUE(read_object(**handle, *pool_, "a/x", 100));
  EXPECT_EQ(*gets_, 1U);
  EXPECT_EQ((*handle)->remove("a/x").code(), Code::kDenied);
}

}  // namespace
}  // namespace headrace
