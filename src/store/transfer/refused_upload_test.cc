// A TLS upload that is refused before all of it has been sent, with a poller that tells of the
// answer and then, in the same turn, that the piece under way was sent, as io_uring does now and
// then.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <semaphore>

#include "net/tls_test_peer.h"
#include "store/transfer/engine_core.h"
#include "store/transfer/scripted_server.h"
#include "store/transfer/transfer_fixture.h"

namespace headrace::transfer {
namespace {

using namespace std::chrono_literals;

/// Keeps what was received on a socket that is sending until that is over, and then tells it first.
class AnswersFirstPoller final : public Poller {
 public:
  /// `on_kept` is called whenever something is kept.
  AnswersFirstPoller(std::unique_ptr<Poller> inner, std::function<void()> on_kept)
      : inner_(std::move(inner)), on_kept_(std::move(on_kept)) {}
  int open(PollSocket& socket, int family) override { return inner_->open(socket, family); }
  int adopt(PollSocket& socket, int fd) override { return inner_->adopt(socket, fd); }
  void close(PollSocket& socket) noexcept override { inner_->close(socket); }
  std::optional<std::int64_t> connect(PollSocket& socket, const sockaddr* address,
                                      socklen_t address_bytes) override {
    return inner_->connect(socket, address, address_bytes);
  }
  std::optional<std::int64_t> receive(PollSocket& socket, std::span<std::byte> buffer,
                                      ReceiveMode mode) override {
    return inner_->receive(socket, buffer, mode);
  }
  std::optional<std::int64_t> send(PollSocket& socket, std::span<const std::byte> head,
                                   std::span<const std::byte> body) override {
    return inner_->send(socket, head, body);
  }
  void cancel(PollSocket& socket) override { inner_->cancel(socket); }
  std::size_t poll(std::span<PollEvent> out, std::chrono::nanoseconds timeout) override {
    std::size_t count = inner_->poll(out, timeout);
    const auto events = [&] { return out.first(count); };
    const auto is_answer = [](const PollEvent& event) { return event.op == PollOp::kReceive; };
    const auto is_kept = [&](const PollEvent& event) {
      return is_answer(event) && event.socket->is_sending();
    };
    if (std::any_of(events().begin(), events().end(), is_kept)) {
      on_kept_();
      const TimePoint until = system_clock().now() + 2s;
      while (std::any_of(events().begin(), events().end(), is_kept) && system_clock().now() < until)
        count += inner_->poll(out.subspan(count), 1ms);
    }
    std::stable_partition(events().begin(), events().end(), is_answer);
    return count;
  }
  void wake() noexcept override { inner_->wake(); }
  const char* name() const noexcept override { return inner_->name(); }

 private:
  const std::unique_ptr<Poller> inner_;
  const std::function<void()> on_kept_;
};

class RefusedUploadTest : public TransferTest {};

TEST_P(RefusedUploadTest, ConnectionWithAHalfSentBodyIsNotUsedAgain) {
  const TestAuthority authority;
  const std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)> tls(authority.server_context({}),
                                                              SSL_CTX_free);
  std::counting_semaphore<> is_kept(0);
  ScriptedServer server(
      [&](const SeenRequest& request, Peer& peer) {
        if (request.head.find("X-Refuse") == std::string::npos) return server.answer(request, peer);
        peer.send(ScriptedServer::head(403, 2) + "no");  // and the connection stays open
        static_cast<void>(is_kept.try_acquire_for(5s));  // the client cannot send any more
        // Enough for the piece under way, too little for the whole body: once all of that is with
        // the server the connection may be used again.
        peer.wait_for_client_to_leave(4 << 20);
      },
      1 << 20, tls.get());
  options_.clock = &system_clock();
  options_.tls_verify = false;
  auto settings = resolve_net_settings(options_, {});
  ASSERT_TRUE(settings);
  Network network(*std::move(settings));
  FakeProtocol protocol(HttpEndpoint{"127.0.0.1", server.port(), true});
  EndpointControl control({}, system_clock().now());
  Reactor::Options own;
  own.connection_limit = 2;
  own.control = &control;
  std::vector<std::unique_ptr<Reactor>> reactors;
  reactors.push_back(std::make_unique<Reactor>(
      std::make_unique<AnswersFirstPoller>(*create_poller(GetParam()), [&] { is_kept.release(); }),
      protocol, network, options_, own));
  ASSERT_TRUE(reactors.front()->start().ok());
  HandleCore handle(reactors, options_);
  const auto outcome_of = [&](Request request) {
    EXPECT_EQ(handle.submit({&request, 1}), 1U);
    Completion completion;
    EXPECT_EQ(handle.wait({&completion, 1}, system_clock().now() + 10s, {}), 1U);
    return completion;
  };
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(outcome_of(put(16 << 20, "refused")).status.code(), Code::kDenied);
    Request next = get(0, 1000);
    next.deadline = system_clock().now() + 3s;
    expect_content(outcome_of(std::move(next)), 0, 1000);
  }
  handle.retire();
  reactors.clear();
  server.stop();
}

INSTANTIATE_TEST_SUITE_P(Kinds, RefusedUploadTest,
                         testing::Values(PollerKind::kUring, PollerKind::kEpoll),
                         [](const auto& kind) {
                           return kind.param == PollerKind::kUring ? "Uring" : "Epoll";
                         });

}  // namespace
}  // namespace headrace::transfer
