// Bytes of large bodies that are counted while they move: seen early, and each of them once.
#include "store/transfer/early_count.h"

#include <gtest/gtest.h>

#include <functional>
#include <semaphore>
#include <thread>

#include "store/transfer/transfer_fixture.h"

namespace headrace::transfer {
namespace {

using namespace std::chrono_literals;

constexpr std::uint64_t kBodyBytes = 16 << 20;

TEST(EarlyCount, CountsEachByteOnceWhateverTheWireHas) {
  Counter counter;
  EarlyCount count(counter);
  count.end(10);  // small: no look
  EXPECT_EQ(counter.get(), 10U);
  count.start(100);
  count.add_seen(60);
  EXPECT_EQ(counter.get(), 70U);
  count.add_seen(60);  // records of TLS
  EXPECT_EQ(counter.get(), 110U);
  count.end(120);  // a head went with it
  EXPECT_EQ(counter.get(), 130U);
  count.end(5);
  EXPECT_EQ(counter.get(), 135U);
}

TEST(EarlyCount, KeepsWhatWasSeenOfAnOperationThatFailed) {
  Counter counter;
  EarlyCount count(counter);
  count.start(100);
  count.add_seen(60);
  count.end(20);  // the rest of what the kernel had taken was lost
  EXPECT_EQ(counter.get(), 60U);
  count.start(100);
  count.add_seen(1);
  count.start(0);  // another attempt
  count.end(50);
  EXPECT_EQ(counter.get(), 111U);
}

class EarlyCountTest : public TransferTest {
 protected:
  void begin(ScriptedServer::Script script) {
    options_.clock = &clock_;  // looks come when the test says so
    start(std::move(script), kBodyBytes);
  }
  /// Lets the reactor look at its sockets until it has counted so many bytes.
  bool is_counted(const std::string& name, double bytes) {
    for (int i = 0; i < 1000 && metric(name) < bytes; ++i) {
      if (i % 50 == 49) clock_.advance(1s);
      std::this_thread::sleep_for(2ms);
    }
    return metric(name) >= bytes;
  }

  std::counting_semaphore<> is_seen_{0};
  std::counting_semaphore<> go_{0};
};

TEST_P(EarlyCountTest, DownloadIsSeenWhileItMoves) {
  std::size_t sent_bytes = 0;
  begin([&](const SeenRequest& request, Peer& peer) {
    const std::string head = ScriptedServer::head(206, kBodyBytes,
                                                  "ETag: \"v1\"\r\nContent-Range: bytes 0-" +
                                                      std::to_string(request.last) + "/" +
                                                      std::to_string(kBodyBytes) + "\r\n");
    const std::string body = server_->content(0, kBodyBytes - 1);
    sent_bytes = head.size() + body.size();
    is_seen_.release();
    // In one piece: some of the body comes with the head.
    peer.send(head + body.substr(0, kBodyBytes / 2));
    go_.acquire();
    peer.send(std::string_view(body).substr(kBodyBytes / 2));
  });
  Request request = get(0, kBodyBytes);
  ASSERT_EQ(handle_->submit({&request, 1}), 1U);
  is_seen_.acquire();
  EXPECT_TRUE(is_counted("store.received_bytes", 4 << 20));
  EXPECT_LE(metric("store.received_bytes"), static_cast<double>(sent_bytes));
  go_.release();
  expect_content(take(), 0, kBodyBytes);
  EXPECT_EQ(metric("store.received_bytes"), static_cast<double>(sent_bytes));
  stop_all();
}

TEST_P(EarlyCountTest, UploadThatIsRefusedOnItsWayIsCountedOnce) {
  std::size_t request_bytes = 0;
  begin([&](const SeenRequest& request, Peer& peer) {
    request_bytes = request.head.size() + kBodyBytes;
    is_seen_.release();
    go_.acquire();  // the client waits until more is taken
    peer.drop(4 << 20);
    go_.acquire();  // some has been counted
    peer.send(ScriptedServer::head(403, 2));
    peer.drop((12 << 20) - (64 << 10));  // the beginning may have come with the head
    go_.acquire();
    peer.send("no");
  });
  Request request = put(kBodyBytes, "refused");
  ASSERT_EQ(handle_->submit({&request, 1}), 1U);
  is_seen_.acquire();
  const double waits = metric("store.reactor_waits");
  while (metric("store.reactor_waits") < waits + 2) std::this_thread::yield();
  go_.release();
  EXPECT_TRUE(is_counted("store.sent_bytes", 2 << 20));
  EXPECT_LT(metric("store.sent_bytes"), static_cast<double>(kBodyBytes));
  go_.release();
  EXPECT_TRUE(is_counted("store.sent_bytes", static_cast<double>(kBodyBytes)));
  go_.release();
  EXPECT_EQ(take().status.code(), Code::kDenied);
  EXPECT_EQ(metric("store.sent_bytes"), static_cast<double>(request_bytes));
  stop_all();
}

INSTANTIATE_TEST_SUITE_P(Kinds, EarlyCountTest,
                         testing::Values(PollerKind::kUring, PollerKind::kEpoll),
                         [](const auto& kind) {
                           return kind.param == PollerKind::kUring ? "Uring" : "Epoll";
                         });

}  // namespace
}  // namespace headrace::transfer
