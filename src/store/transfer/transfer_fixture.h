#pragma once
/// \file
/// For tests: an engine with a scripted server at its other end, for each poller.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/manual_clock.h"
#include "store/transfer/engine_core.h"
#include "store/transfer/scripted_server.h"
#include "store/transfer/transfer_engine.h"

namespace headrace {

using transfer::FakeProtocol;
using transfer::Peer;
using transfer::ScriptedServer;
using transfer::SeenRequest;

inline std::string text(std::string_view view) { return std::string(view); }

class TransferTest : public testing::TestWithParam<PollerKind> {
 protected:
  void SetUp() override {
    if (!transfer::create_poller(GetParam())) GTEST_SKIP() << "not available here";
    options_.poller = GetParam();
    options_.max_in_flight = 4;
    options_.default_timeout = std::chrono::seconds(20);
    options_.retry_seed = 1;
    SlabPool::Options pool_options;
    pool_options.limit_bytes = 64 << 20;
    auto pool = SlabPool::create(pool_options);
    ASSERT_TRUE(pool);
    pool_ = *std::move(pool);
  }
  void TearDown() override {
    stop_all();
    server_.reset();
    if (pool_) {
      EXPECT_EQ(pool_->used_bytes(), 0U);
    }
  }
  /// Afterwards no script runs: for tests that share local variables with theirs.
  void stop_all() {
    handle_.reset();
    engine_.reset();
    if (server_) server_->stop();
  }
  /// `script` answers; without one the server is a good one.
  void start(ScriptedServer::Script script = nullptr, std::uint64_t object_bytes = 1 << 20) {
    if (server_) server_->stop();  // Its script may look at server_.
    server_ = std::make_unique<ScriptedServer>(std::move(script), object_bytes);
    start_engine(server_->port());
  }
  void start_engine(std::uint16_t port, const std::string& host = "127.0.0.1") {
    auto engine = TransferEngine::create(std::make_shared<FakeProtocol>(port, host), options_);
    ASSERT_TRUE(engine) << engine.error().message();
    engine_ = *std::move(engine);
    handle_ = engine_->new_handle();
  }
  Request get(std::uint64_t offset_bytes, std::uint64_t length_bytes, std::uint64_t tag = 0) {
    Request request;
    request.key = "object";
    request.offset_bytes = offset_bytes;
    request.length_bytes = length_bytes;
    request.tag = tag;
    request.slab = *pool_->try_acquire(length_bytes);
    return request;
  }
  /// A read of ten bytes that must end by then, whatever it waits for.
  Completion read_within(std::chrono::milliseconds time) {
    Request request = get(0, 10);
    request.deadline = system_clock().now() + time;
    return transfer(std::move(request));
  }
  Request put(std::uint64_t length_bytes, std::string_view key = "object") {
    Request request = get(0, length_bytes);
    request.op = Op::kPut;
    request.key = key;
    for (std::size_t i = 0; i < length_bytes; ++i) {
      request.slab.bytes()[i] = static_cast<std::byte>(ScriptedServer::content_byte(i));
    }
    return request;
  }
  Completion take() {
    Completion completion;
    const std::size_t count =
        handle_->wait({&completion, 1}, system_clock().now() + std::chrono::seconds(200));
    EXPECT_EQ(count, 1U) << "no completion came";
    return completion;
  }
  Completion transfer(Request request) {
    EXPECT_EQ(handle_->submit({&request, 1}), 1U);
    return take();
  }
  double metric(const std::string& name) const {
    MetricList metrics;
    engine_->append_metrics(metrics);
    for (const Metric& entry : metrics) {
      if (entry.name == name) return entry.value;
    }
    ADD_FAILURE() << "no metric " << name;
    return -1;
  }
  void expect_content(const Completion& completion, std::uint64_t offset_bytes,
                      std::uint64_t length_bytes) const {
    ASSERT_TRUE(completion.status.ok()) << completion.status.message();
    ASSERT_EQ(completion.length_bytes, length_bytes);
    const auto bytes = completion.slab.bytes().first(length_bytes);
    for (std::uint64_t i = 0; i < length_bytes; ++i) {
      ASSERT_EQ(static_cast<char>(bytes[i]), ScriptedServer::content_byte(offset_bytes + i)) << i;
    }
  }

  ManualClock clock_;
  StoreOptions options_;
  std::unique_ptr<SlabPool> pool_;
  std::unique_ptr<ScriptedServer> server_;
  std::shared_ptr<TransferEngine> engine_;
  std::unique_ptr<TransferHandle> handle_;
};

}  // namespace headrace
