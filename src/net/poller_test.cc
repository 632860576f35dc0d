#include "net/poller.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

namespace headrace {
namespace {

using namespace std::chrono_literals;

constexpr std::chrono::nanoseconds kPatience = 10s;

std::span<const std::byte> bytes_of(std::string_view text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

/// A listening loopback socket.
class Listener {
 public:
  explicit Listener(bool is_listening = true)
      : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    address_.sin_family = AF_INET;
    address_.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::bind(fd_, get(), sizeof(address_)), 0);
    if (is_listening) {
      EXPECT_EQ(::listen(fd_, 16), 0);
    }
    socklen_t size_bytes = sizeof(address_);
    EXPECT_EQ(::getsockname(fd_, reinterpret_cast<sockaddr*>(&address_), &size_bytes), 0);
  }
  ~Listener() { ::close(fd_); }
  int accept() const { return ::accept(fd_, nullptr, nullptr); }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&address_); }
  static constexpr socklen_t kSizeBytes = sizeof(sockaddr_in);

 private:
  int fd_;
  sockaddr_in address_{};
};

struct Kind {
  const char* name;
  Result<std::unique_ptr<Poller>> (*create)();
};

class PollerTest : public testing::TestWithParam<Kind> {
 protected:
  void SetUp() override {
    auto created = GetParam().create();
    if (!created && created.error().code() == Code::kUnsupported)
      GTEST_SKIP() << created.error().message();
    ASSERT_TRUE(created) << created.error().message();
    poller_ = *std::move(created);
  }
  void TearDown() override {
    if (!poller_) return;
    for (PollSocket* socket : {&socket_, &second_}) {
      if (socket->is_busy()) {
        poller_->cancel(*socket);
        while (socket->is_busy()) next();
      }
      poller_->close(*socket);
    }
    if (peer_ >= 0) ::close(peer_);
  }

  /// socket_ becomes one end of a pair, peer_ the other.
  void connect_pair() {
    int fds[2];
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    ASSERT_EQ(poller_->adopt(socket_, fds[0]), 0);
    peer_ = fds[1];
  }
  void connect_tcp() {
    const Listener listener;
    ASSERT_EQ(poller_->open(socket_, AF_INET), 0);
    const auto connected = poller_->connect(socket_, listener.get(), Listener::kSizeBytes);
    if (connected) {
      ASSERT_EQ(*connected, 0);
    } else {
      ASSERT_EQ(next().result, 0);
    }
    peer_ = listener.accept();
    ASSERT_GE(peer_, 0);
  }
  void peer_sends(std::string_view text) const {
    ASSERT_EQ(::write(peer_, text.data(), text.size()), static_cast<ssize_t>(text.size()));
  }

  PollEvent next() {
    PollEvent events[2];
    const auto until = std::chrono::steady_clock::now() + kPatience;
    while (std::chrono::steady_clock::now() < until) {
      const std::size_t count = poller_->poll(events, kPatience);
      EXPECT_LE(count, 1U);
      if (count > 0) return events[0];
    }
    ADD_FAILURE() << "no event came";
    return {};
  }
  /// The result of an operation, wherever it comes from.
  std::int64_t result_of(std::optional<std::int64_t> started) {
    return started ? *started : next().result;
  }

  std::unique_ptr<Poller> poller_;
  PollSocket socket_{this};
  PollSocket second_;
  int peer_ = -1;
  std::vector<std::byte> buffer_ = std::vector<std::byte>(64);
  std::string received(std::int64_t size_bytes) const {
    return {reinterpret_cast<const char*>(buffer_.data()), static_cast<std::size_t>(size_bytes)};
  }
};

TEST_P(PollerTest, ReceivesWhatIsThereAlready) {
  connect_pair();
  peer_sends("hello");
  EXPECT_EQ(received(result_of(poller_->receive(socket_, buffer_, ReceiveMode::kSome))), "hello");
}

TEST_P(PollerTest, ReceivesWhatComesLater) {
  connect_pair();
  ASSERT_FALSE(poller_->receive(socket_, buffer_, ReceiveMode::kSome));
  EXPECT_TRUE(socket_.is_receiving());
  peer_sends("hello");
  const PollEvent event = next();
  EXPECT_EQ(event.socket, &socket_);
  EXPECT_EQ(event.op, PollOp::kReceive);
  EXPECT_EQ(event.socket->owner, this);
  EXPECT_EQ(received(event.result), "hello");
  EXPECT_FALSE(socket_.is_receiving());
}

TEST_P(PollerTest, ReceivesAnAnswerThatIsExpectedLater) {
  connect_pair();
  for (const std::string answer : {"one", "two", "three"}) {
    ASSERT_EQ(result_of(poller_->send(socket_, bytes_of("ask"), {})), 3);
    const auto started = poller_->receive(socket_, buffer_, ReceiveMode::kSomeLater);
    if (!started) peer_sends(answer);
    EXPECT_EQ(received(result_of(started)), answer);
  }
}

TEST_P(PollerTest, ReceiveAllWaitsForTheWholeBuffer) {
  connect_pair();
  peer_sends("0123456789");
  std::span<std::byte> target(buffer_.data(), 20);
  const auto started = poller_->receive(socket_, target, ReceiveMode::kAll);
  ASSERT_FALSE(started);
  PollEvent events[2];
  EXPECT_EQ(poller_->poll(events, 0ms), 0U);
  peer_sends("abcde");
  EXPECT_EQ(poller_->poll(events, 0ms), 0U);
  peer_sends("fghijREST");
  EXPECT_EQ(received(next().result), "0123456789abcdefghij");
  EXPECT_EQ(received(result_of(poller_->receive(socket_, buffer_, ReceiveMode::kSome))), "REST");
}

TEST_P(PollerTest, ReceiveAllEndsShortAtTheEndOfTheStream) {
  connect_pair();
  peer_sends("half");
  const auto started = poller_->receive(socket_, buffer_, ReceiveMode::kAll);
  ASSERT_EQ(::shutdown(peer_, SHUT_WR), 0);
  EXPECT_EQ(received(result_of(started)), "half");
  EXPECT_EQ(result_of(poller_->receive(socket_, buffer_, ReceiveMode::kSome)), 0);
}

TEST_P(PollerTest, EndThatCameBeforeTheReceiveIsSeen) {
  connect_pair();
  // A receive in between makes sure that the end is not a fresh edge any more.
  peer_sends("last");
  ASSERT_EQ(::shutdown(peer_, SHUT_WR), 0);
  EXPECT_EQ(received(result_of(poller_->receive(socket_, buffer_, ReceiveMode::kSome))), "last");
  EXPECT_EQ(result_of(poller_->receive(socket_, buffer_, ReceiveMode::kSomeLater)), 0);
  EXPECT_EQ(result_of(poller_->receive(socket_, buffer_, ReceiveMode::kAll)), 0);
}

TEST_P(PollerTest, ReceiveReportsAReset) {
  connect_tcp();
  const auto started = poller_->receive(socket_, buffer_, ReceiveMode::kAll);
  const linger hard{1, 0};
  ASSERT_EQ(::setsockopt(peer_, SOL_SOCKET, SO_LINGER, &hard, sizeof(hard)), 0);
  ::close(std::exchange(peer_, -1));
  EXPECT_EQ(result_of(started), -ECONNRESET);
}

TEST_P(PollerTest, SendGathersHeadAndBody) {
  connect_pair();
  EXPECT_EQ(result_of(poller_->send(socket_, bytes_of("head "), bytes_of("body"))), 9);
  char text[16];
  EXPECT_EQ(::read(peer_, text, sizeof(text)), 9);
  EXPECT_EQ(std::string_view(text, 9), "head body");
}

TEST_P(PollerTest, SendsMoreThanTheSocketHolds) {
  connect_tcp();
  std::vector<std::byte> body(16 << 20);
  for (std::size_t i = 0; i < body.size(); ++i)
    body[i] = static_cast<std::byte>(i * 2654435761U >> 13);
  const auto started = poller_->send(socket_, bytes_of("head"), body);
  ASSERT_FALSE(started);
  EXPECT_TRUE(socket_.is_sending());
  std::vector<std::byte> got(body.size() + 4);
  std::thread reader([&] {
    EXPECT_EQ(::recv(peer_, got.data(), got.size(), MSG_WAITALL), static_cast<ssize_t>(got.size()));
  });
  const PollEvent event = next();
  reader.join();
  EXPECT_EQ(event.op, PollOp::kSend);
  EXPECT_EQ(event.result, static_cast<std::int64_t>(got.size()));
  EXPECT_TRUE(std::equal(body.begin(), body.end(), got.begin() + 4));
  EXPECT_GE(progress_bytes(socket_), body.size() / 2);
}

TEST_P(PollerTest, ReceivesWhileSending) {
  connect_pair();
  const std::vector<std::byte> body(8 << 20);
  ASSERT_FALSE(poller_->send(socket_, body, {}));
  peer_sends("no");
  EXPECT_EQ(received(result_of(poller_->receive(socket_, buffer_, ReceiveMode::kSome))), "no");
  EXPECT_TRUE(socket_.is_sending());
}

TEST_P(PollerTest, SendToAClosedPeerFails) {
  connect_pair();
  ::close(std::exchange(peer_, -1));
  EXPECT_EQ(result_of(poller_->send(socket_, bytes_of("x"), {})), -EPIPE);
}

TEST_P(PollerTest, CancelEndsAReceive) {
  connect_pair();
  ASSERT_FALSE(poller_->receive(socket_, buffer_, ReceiveMode::kAll));
  poller_->cancel(socket_);
  poller_->cancel(socket_);
  EXPECT_TRUE(socket_.is_busy());
  EXPECT_EQ(next().result, -ECANCELED);
  EXPECT_FALSE(socket_.is_busy());
  PollEvent events[2];
  EXPECT_EQ(poller_->poll(events, 0ms), 0U);
}

TEST_P(PollerTest, CancelEndsAReceiveThatHasPartOfItsBytes) {
  connect_pair();
  peer_sends("part");
  ASSERT_FALSE(poller_->receive(socket_, buffer_, ReceiveMode::kAll));
  PollEvent events[2];
  ASSERT_EQ(poller_->poll(events, 0ms), 0U);
  poller_->cancel(socket_);
  EXPECT_EQ(next().result, -ECANCELED);
}

TEST_P(PollerTest, CancelEndsASendAndAReceive) {
  connect_pair();
  const std::vector<std::byte> body(8 << 20);
  ASSERT_FALSE(poller_->send(socket_, body, {}));
  ASSERT_FALSE(poller_->receive(socket_, buffer_, ReceiveMode::kSome));
  poller_->cancel(socket_);
  int events_seen = 0;
  for (PollEvent events[4]; socket_.is_busy();) {
    const std::size_t count = poller_->poll(events, kPatience);
    for (std::size_t i = 0; i < count; ++i) EXPECT_EQ(events[i].result, -ECANCELED);
    events_seen += static_cast<int>(count);
  }
  EXPECT_EQ(events_seen, 2);
}

TEST_P(PollerTest, ConnectIsRefused) {
  const Listener nobody(false);
  ASSERT_EQ(poller_->open(socket_, AF_INET), 0);
  EXPECT_EQ(result_of(poller_->connect(socket_, nobody.get(), Listener::kSizeBytes)),
            -ECONNREFUSED);
}

TEST_P(PollerTest, SocketIsUsableAgainAfterClose) {
  connect_pair();
  poller_->close(socket_);
  EXPECT_FALSE(socket_.is_open());
  ::close(std::exchange(peer_, -1));
  connect_pair();
  peer_sends("again");
  EXPECT_EQ(received(result_of(poller_->receive(socket_, buffer_, ReceiveMode::kSome))), "again");
}

TEST_P(PollerTest, ClosingEndsTheStreamThoughAChildHasTheDescriptor) {
  connect_pair();
  const int of_the_child = ::fcntl(socket_.fd(), F_DUPFD_CLOEXEC, 0);
  ASSERT_GE(of_the_child, 0);
  poller_->close(socket_);
  ASSERT_EQ(::fcntl(peer_, F_SETFL, O_NONBLOCK), 0);
  char byte = 0;
  EXPECT_EQ(::read(peer_, &byte, 1), 0) << "the peer is told at once";
  ::close(of_the_child);
}

TEST_P(PollerTest, QuietTellsIdleFromClosed) {
  connect_tcp();
  EXPECT_TRUE(is_quiet(socket_));
  peer_sends("x");
  result_of(poller_->receive(socket_, std::span(buffer_).first(1), ReceiveMode::kAll));
  EXPECT_TRUE(is_quiet(socket_));
  ::close(std::exchange(peer_, -1));
  // Loopback delivers the FIN before close() returns.
  EXPECT_FALSE(is_quiet(socket_));
}

TEST_P(PollerTest, WakeBeforePollEndsIt) {
  PollEvent events[2];
  poller_->poll(events, 0ms);  // makes this thread the owner
  poller_->wake();
  EXPECT_EQ(poller_->poll(events, kPatience), 0U);
}

TEST_P(PollerTest, WakeFromAnotherThreadEndsPollEachTime) {
  PollEvent events[2];
  poller_->poll(events, 0ms);
  for (int i = 0; i < 20; ++i) {
    std::thread other([&] { poller_->wake(); });
    EXPECT_EQ(poller_->poll(events, -1ns), 0U);
    other.join();
  }
}

TEST_P(PollerTest, PollReturnsAfterItsTimeout) {
  PollEvent events[2];
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(poller_->poll(events, 10ms), 0U);
  // Runs after tests whose rings are still being torn down, which interrupts waits.
  EXPECT_GE(std::chrono::steady_clock::now() - start, 9ms);
}

TEST_P(PollerTest, DeliversMoreEventsThanFitAtOnce) {
  connect_pair();
  int fds[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
  ASSERT_EQ(poller_->adopt(second_, fds[0]), 0);
  std::vector<std::byte> other(8);
  ASSERT_FALSE(poller_->receive(socket_, buffer_, ReceiveMode::kSome));
  ASSERT_FALSE(poller_->receive(second_, other, ReceiveMode::kSome));
  peer_sends("a");
  ASSERT_EQ(::write(fds[1], "b", 1), 1);
  int seen = 0;
  for (PollEvent events[2]; seen < 2;) {
    const std::size_t count = poller_->poll(events, kPatience);
    ASSERT_LE(count, 2U);
    seen += static_cast<int>(count);
  }
  EXPECT_FALSE(socket_.is_busy() || second_.is_busy());
  ::close(fds[1]);
}

INSTANTIATE_TEST_SUITE_P(Kinds, PollerTest,
                         testing::Values(Kind{"uring", create_uring_poller},
                                         Kind{"epoll", create_epoll_poller}),
                         [](const auto& param_info) { return std::string(param_info.param.name); });

TEST_P(PollerTest, KnowsItsName) { EXPECT_STREQ(poller_->name(), GetParam().name); }

TEST(CreateBestPoller, AlwaysFindsOne) {
  auto poller = create_best_poller();
  ASSERT_TRUE(poller);
  const std::string name = (*poller)->name();
  EXPECT_TRUE(name == "uring" || name == "epoll");
}

}  // namespace
}  // namespace headrace
