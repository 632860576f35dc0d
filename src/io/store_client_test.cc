#include "headrace/store_client.h"

#include <gtest/gtest.h>

#include <string>

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

}  // namespace
}  // namespace headrace
