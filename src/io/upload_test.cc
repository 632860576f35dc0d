#include "headrace/upload.h"

#include <gtest/gtest.h>

#include <stdexcept>
#include <string>

#include "headrace/forwarding_store.h"
#include "io/testing/own_memory_store.h"

namespace headrace {
namespace {

const Pause kNoPause = [] {};

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}

/// Counts uploads that were begun and neither completed nor aborted; refuses the part that it is
/// told to refuse.
class CountingStore : public ForwardingStore {
 public:
  struct Counts {
    int open = 0;
    std::uint32_t refused_part = 0;
  };
  CountingStore(std::unique_ptr<Store> inner, std::shared_ptr<Counts> counts)
      : ForwardingStore(std::move(inner)), counts_(std::move(counts)) {}

  std::size_t submit(std::span<Request> requests) override {
    for (Request& request : requests) {
      // An upload that nobody knows: the store refuses the part.
      if (request.op == Op::kPutPart && request.part_number == counts_->refused_part)
        request.upload_id = "unknown";
    }
    return inner().submit(requests);
  }
  Result<std::string> create_upload(const std::string& key, const CallOptions& call) override {
    ++counts_->open;
    return inner().create_upload(key, call);
  }
  Result<ObjectInfo> complete_upload(const std::string& key, const std::string& upload_id,
                                     std::span<const UploadedPart> parts,
                                     const CallOptions& call) override {
    --counts_->open;
    return inner().complete_upload(key, upload_id, parts, call);
  }
  Status abort_upload(const std::string& key, const std::string& upload_id,
                      const CallOptions& call) override {
    --counts_->open;
    return inner().abort_upload(key, upload_id, call);
  }

 private:
  Result<std::unique_ptr<Store>> wrap(std::unique_ptr<Store> handle) override {
    return std::unique_ptr<Store>(new CountingStore(std::move(handle), counts_));
  }

  const std::shared_ptr<Counts> counts_;
};

class UploadTest : public ::testing::Test {
 protected:
  UploadTest() {
    auto store = std::make_unique<CountingStore>(testing::own_memory_store(), counts_);
    client_ = *StoreClient::wrap(std::move(store), 1 << 20);
  }
  std::unique_ptr<StoreClient::Upload> begin(Pause pause = kNoPause) {
    auto upload = StoreClient::Upload::create(client_, "key", std::move(pause));
    EXPECT_TRUE(upload && (*upload)->begin().ok());
    return *std::move(upload);
  }
  /// And nothing is left of it.
  void expect_given_up(std::unique_ptr<StoreClient::Upload> upload) {
    EXPECT_EQ(upload->finish().error().code(), Code::kCancelled);
    upload.reset();
    EXPECT_EQ(counts_->open, 0);
    EXPECT_FALSE(is_there());
  }
  bool is_there() { return client_->store().head("key").has_value(); }

  std::shared_ptr<CountingStore::Counts> counts_ = std::make_shared<CountingStore::Counts>();
  std::shared_ptr<StoreClient> client_;
};

TEST_F(UploadTest, IsVisibleOnlyWhenItIsFinished) {
  auto upload = begin();
  std::string all;
  for (int i = 0; i < 40; ++i) {  // more than its memory holds
    const std::string part(64 << 10, static_cast<char>('a' + i % 23));
    ASSERT_TRUE(upload->put(bytes_of(part)).ok());
    all += part;
  }
  EXPECT_FALSE(is_there());
  auto info = upload->finish();
  ASSERT_TRUE(info) << info.error().message();
  EXPECT_EQ(info->size_bytes, all.size());
  std::string back(all.size(), '\0');
  ASSERT_TRUE(client_->fetch("key", {}, 0, std::as_writable_bytes(std::span(back)), kNoPause).ok());
  EXPECT_EQ(back, all);
  EXPECT_EQ(client_->pool()->used_bytes(), 0U);
  EXPECT_EQ(counts_->open, 0);
}

TEST_F(UploadTest, IsAbortedWhenItIsDropped) {
  begin()->put(bytes_of("part")).ok();
  EXPECT_EQ(counts_->open, 0);
  EXPECT_FALSE(is_there());
}

TEST_F(UploadTest, CannotGoOnWithoutAPart) {
  counts_->refused_part = 2;
  auto upload = begin();
  Status status;
  for (int i = 0; i < 20 && status.ok(); ++i) status = upload->put(bytes_of("part"));
  EXPECT_EQ(status.code(), Code::kNotFound) << status.message();
  EXPECT_EQ(upload->put(bytes_of("part")).code(), Code::kCancelled);
  expect_given_up(std::move(upload));
}

TEST_F(UploadTest, SaysThatMemoryIsHeldByOthers) {
  auto upload = begin();
  const auto held = client_->pool()->try_acquire(1 << 20);
  ASSERT_TRUE(held);
  EXPECT_EQ(upload->put(bytes_of("part")).code(), Code::kExhausted);
  EXPECT_EQ(upload->finish().error().code(), Code::kCancelled);
}

TEST_F(UploadTest, IsNotFinishedAfterAPartWasInterrupted) {
  auto upload = begin([] { throw std::runtime_error("Ctrl-C"); });
  // The other call may give its memory back, so that the part waits for it, and pause is called.
  const Status other = client_->read(client_->read_options(kNoPause), [&](RangeFetcher&) -> Status {
    const auto held = client_->pool()->try_acquire(1 << 20);
    EXPECT_TRUE(held);
    EXPECT_THROW(static_cast<void>(upload->put(bytes_of("part"))), std::runtime_error);
    return {};
  });
  EXPECT_TRUE(other.ok());
  expect_given_up(std::move(upload));
}

TEST_F(UploadTest, EndsWhenItIsCancelledOrTheClientIsClosed) {
  auto cancelled = begin();
  ASSERT_TRUE(cancelled->put(bytes_of("part")).ok());
  cancelled->cancel();
  EXPECT_EQ(cancelled->finish().error().code(), Code::kCancelled);
  auto closed = begin();
  client_->close();
  static_cast<void>(closed->put(bytes_of("part")));  // may be noticed as late as at the end
  EXPECT_EQ(closed->finish().error().code(), Code::kCancelled);
  EXPECT_EQ(StoreClient::Upload::create(client_, "key", kNoPause).error().code(), Code::kCancelled);
}

}  // namespace
}  // namespace headrace
