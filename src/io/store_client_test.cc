#include "headrace/store_client.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "headrace/forwarding_store.h"
#include "io/testing/own_memory_store.h"

namespace headrace {
namespace {

const Pause kNoPause = [] {};

class StoreClientTest : public ::testing::Test {
 protected:
  StoreClientTest() { client_ = *StoreClient::wrap(testing::own_memory_store(), 1 << 20); }
  static std::span<const std::byte> bytes_of(const std::string& text) {
    return std::as_bytes(std::span(text));
  }

  std::shared_ptr<StoreClient> client_;
};

TEST_F(StoreClientTest, WritesAndReadsBackInParts) {
  std::string text;
  for (int i = 0; i < 300'000; ++i) text += static_cast<char>('a' + i % 23);
  auto written = client_->upload("key", bytes_of(text), 16 << 10, kNoPause);
  ASSERT_TRUE(written) << written.error().message();
  EXPECT_EQ(written->size_bytes, text.size());
  std::string back(text.size() - 10, '\0');
  const auto out = std::as_writable_bytes(std::span(back));
  ASSERT_TRUE(client_->fetch("key", written->etag, 10, out, kNoPause).ok());
  EXPECT_EQ(back, text.substr(10));
  EXPECT_EQ(client_->fetch("key", "\"other\"", 10, out, kNoPause).code(), Code::kChanged);
  EXPECT_EQ(client_->pool()->used_bytes(), 0U);
}

TEST_F(StoreClientTest, AClosedClientSaysThatItWasClosed) {
  const std::stop_token closing = client_->closing();
  EXPECT_FALSE(closing.stop_requested());
  client_->close();
  EXPECT_TRUE(closing.stop_requested());
  Request request;
  request.key = "key";
  const Completion done = client_->run(std::move(request), kNoPause);
  EXPECT_EQ(done.status.code(), Code::kCancelled);
  EXPECT_NE(done.status.message().find("the store was closed"), std::string_view::npos);
}

TEST_F(StoreClientTest, CloseUnderACallEndsItAndSaysWhy) {
  ASSERT_TRUE(client_->upload("key", bytes_of(std::string(1000, 'x')), 4096, kNoPause));
  const Status status = client_->read(client_->read_options(kNoPause), [&](RangeFetcher& fetcher) {
    fetcher.start({.key = "key", .etag = {}, .length_bytes = 1000});
    client_->close();
    const auto data = fetcher.next();
    EXPECT_FALSE(data.has_value());
    return data ? Status() : data.error().clone();
  });
  EXPECT_EQ(status.code(), Code::kCancelled);
  EXPECT_NE(status.message().find("the store was closed"), std::string_view::npos);
}

TEST_F(StoreClientTest, APauseThatThrowsEndsTheCall) {
  struct Interrupt {};
  RangeFetcher::Options options = client_->read_options([] { throw Interrupt(); });
  // Nothing is under way: the wait goes on until somebody throws.
  EXPECT_THROW(static_cast<void>(client_->read(
                   std::move(options),
                   [](RangeFetcher& fetcher) { return fetcher.next().error().clone(); })),
               Interrupt);
  // The client is as good as before.
  EXPECT_TRUE(client_->upload("key", bytes_of("text"), 4096, kNoPause));
}

TEST_F(StoreClientTest, MemoryThatTheCallerHoldsIsSaidAtOnce) {
  auto held = client_->pool()->try_acquire(1 << 20);
  ASSERT_TRUE(held);
  std::string back(10, '\0');
  const Status status =
      client_->fetch("key", {}, 0, std::as_writable_bytes(std::span(back)), kNoPause);
  EXPECT_EQ(status.code(), Code::kExhausted);
  EXPECT_NE(status.message().find("raise memory="), std::string_view::npos);
}

/// Takes requests one by one, and has something done before each.
class HookedStore final : public ForwardingStore {
 public:
  HookedStore(std::unique_ptr<Store> inner, std::function<void()> hook)
      : ForwardingStore(std::move(inner)), hook_(std::move(hook)) {}

  std::size_t submit(std::span<Request> requests) override {
    if (!requests.empty()) hook_();
    return inner().submit(requests.first(std::min<std::size_t>(requests.size(), 1)));
  }

 private:
  Result<std::unique_ptr<Store>> wrap(std::unique_ptr<Store> handle) override {
    return std::unique_ptr<Store>(std::make_unique<HookedStore>(std::move(handle), hook_));
  }
  const std::function<void()> hook_;
};

TEST_F(StoreClientTest, PartsOfSeveralVersionsAreNoObject) {
  auto store = testing::own_memory_store();
  const std::shared_ptr<Store> other = *store->new_handle();
  const auto write = [&](char c) {
    ASSERT_TRUE(write_object(*other, *client_->pool(), "key", std::string(100'000, c)));
  };
  write('a');
  int count = 0;
  const auto hook = [&] {
    if (++count == 2) write('b');
  };
  const auto client =
      *StoreClient::wrap(std::make_unique<HookedStore>(std::move(store), hook), 256 << 10);
  std::string back(100'000, '\0');
  const auto out = std::as_writable_bytes(std::span(back));
  const Status status = client->fetch("key", {}, 0, out, kNoPause);
  EXPECT_EQ(status.code(), Code::kChanged) << status.message();
  EXPECT_TRUE(client->fetch("key", {}, 0, out, kNoPause).ok()) << "nobody replaces it any more";
  EXPECT_EQ(back, std::string(100'000, 'b'));
}

/// Notes how objects are written, and signs URLs once it was asked often enough.
class NotingStore final : public ForwardingStore {
 public:
  struct Notes {
    int puts = 0, parts = 0;
    std::uint64_t first_part_bytes = 0;
    Code refusal = Code::kUnavailable;
    int refusals = 0;
  };
  NotingStore(std::unique_ptr<Store> inner, std::shared_ptr<Notes> notes)
      : ForwardingStore(std::move(inner)), notes_(std::move(notes)) {}

  std::size_t submit(std::span<Request> requests) override {
    for (const Request& request : requests) {
      if (request.op == Op::kPut) ++notes_->puts;
      if (request.op == Op::kPutPart && notes_->parts++ == 0)
        notes_->first_part_bytes = request.length_bytes;
    }
    return inner().submit(requests);
  }
  Result<std::string> presign(const PresignRequest& request) override {
    if (notes_->refusals-- > 0) return Status(notes_->refusal, "no credentials yet");
    return "signed " + request.key;
  }

 private:
  Result<std::unique_ptr<Store>> wrap(std::unique_ptr<Store> handle) override {
    return std::unique_ptr<Store>(std::make_unique<NotingStore>(std::move(handle), notes_));
  }
  const std::shared_ptr<Notes> notes_;
};

class StoreClientPut : public ::testing::Test {
 protected:
  static constexpr std::size_t kMiB = std::size_t{1} << 20;
  std::shared_ptr<StoreClient> client_of(std::uint64_t memory_bytes) {
    return *StoreClient::wrap(std::make_unique<NotingStore>(testing::own_memory_store(), notes_),
                              memory_bytes);
  }
  Result<ObjectInfo> put(StoreClient& client, std::size_t size, bool if_absent = false) {
    const std::string text(size, 'x');
    return client.put("key", std::as_bytes(std::span(text)), {.if_absent = if_absent}, kNoPause);
  }
  const std::shared_ptr<NotingStore::Notes> notes_ = std::make_shared<NotingStore::Notes>();
};

TEST_F(StoreClientPut, IsOneRequestUpToTwoParts) {
  const auto client = client_of(128 * kMiB);
  auto info = put(*client, 16 * kMiB);
  ASSERT_TRUE(info) << info.error().message();
  EXPECT_EQ(info->size_bytes, 16 * kMiB);
  EXPECT_EQ(info->etag, client->store().head("key")->etag);
  EXPECT_EQ(notes_->puts, 1);
  EXPECT_EQ(notes_->parts, 0);
}

TEST_F(StoreClientPut, IsAnUploadBeyondThatUnlessNothingMayBeReplaced) {
  const auto client = client_of(128 * kMiB);
  ASSERT_TRUE(put(*client, 16 * kMiB + 1));
  EXPECT_EQ(notes_->puts, 0);
  EXPECT_EQ(notes_->parts, 3);
  EXPECT_EQ(notes_->first_part_bytes, 8 * kMiB);
  EXPECT_EQ(put(*client, 16 * kMiB + 1, /*if_absent=*/true).error().code(), Code::kChanged);
  EXPECT_EQ(notes_->puts, 1);
}

TEST_F(StoreClientPut, WhatIsOneRequestMustFitTheMemory) {
  const auto client = client_of(kMiB);
  const auto refused = put(*client, 2 * kMiB, /*if_absent=*/true);
  EXPECT_EQ(refused.error().code(), Code::kInvalidArgument);
  EXPECT_NE(refused.error().message().find("2097152 bytes do not fit memory= (1048576 bytes)"),
            std::string_view::npos);
  EXPECT_EQ(notes_->puts, 0);
}

TEST_F(StoreClientPut, PresignWaitsForCredentialsButForNothingElse) {
  const auto client = client_of(kMiB);
  notes_->refusals = 3;
  EXPECT_EQ(*client->presign({.key = "key"}, {}), "signed key");
  notes_->refusals = 3;
  notes_->refusal = Code::kDenied;
  EXPECT_EQ(client->presign({.key = "key"}, {}).error().code(), Code::kDenied);
  EXPECT_EQ(notes_->refusals, 2) << "asked once";
  std::stop_source stop;
  stop.request_stop();
  notes_->refusal = Code::kUnavailable;
  EXPECT_EQ(client->presign({.key = "key"}, stop.get_token()).error().code(), Code::kUnavailable);
  EXPECT_EQ(notes_->refusals, 1) << "asked once";
}

}  // namespace
}  // namespace headrace
