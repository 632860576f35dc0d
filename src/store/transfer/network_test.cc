// TLS, redirects, proxies and checksums, with both pollers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <atomic>
#include <fstream>
#include <functional>
#include <semaphore>
#include <thread>

#include "base/crc32c.h"
#include "base/crc64nvme.h"
#include "base/fd.h"
#include "base/temporary_directory.h"
#include "net/resolver.h"
#include "net/tls_test_peer.h"
#include "store/transfer/scripted_server.h"
#include "store/transfer/transfer_fixture.h"

namespace headrace {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

const TestAuthority& authority() {
  static const TestAuthority made;
  return made;
}

struct ContextDeleter {
  void operator()(SSL_CTX* context) const { SSL_CTX_free(context); }
};

/// Hands each of its connections, one at a time, to a function that need not speak HTTP.
class RawServer {
 public:
  explicit RawServer(std::function<void(int)> serve)
      : serve_(std::move(serve)), fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::bind(fd_.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    EXPECT_EQ(::listen(fd_.get(), 16), 0);
    socklen_t size_bytes = sizeof(address);
    ::getsockname(fd_.get(), reinterpret_cast<sockaddr*>(&address), &size_bytes);
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this] {
      for (;;) {
        const Fd peer(::accept4(fd_.get(), nullptr, nullptr, SOCK_CLOEXEC));
        if (!peer) return;
        serve_(peer.get());
      }
    });
  }
  ~RawServer() { stop(); }
  /// \pre its clients have left
  void stop() {
    if (!thread_.joinable()) return;
    ::shutdown(fd_.get(), SHUT_RDWR);
    thread_.join();
  }
  std::uint16_t port() const { return port_; }

 private:
  const std::function<void(int)> serve_;
  const Fd fd_;
  std::uint16_t port_ = 0;
  std::thread thread_;
};

/// Moves bytes between `fd` and a port of this machine until one side ends.
void pass_on(int fd, std::uint16_t port) {
  const Fd other(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const auto address = parse_numeric_address("127.0.0.1", port);
  ASSERT_EQ(::connect(other.get(), address->get(), address->size_bytes), 0);
  std::vector<char> bytes(64 << 10);
  for (;;) {
    pollfd polled[2] = {{fd, POLLIN, 0}, {other.get(), POLLIN, 0}};
    if (::poll(polled, 2, -1) < 0) return;
    for (int i = 0; i < 2; ++i) {
      if (polled[i].revents == 0) continue;
      const ssize_t got = ::recv(polled[i].fd, bytes.data(), bytes.size(), 0);
      if (got <= 0) return;
      for (ssize_t sent = 0; sent < got;) {
        const ssize_t n = ::send(polled[1 - i].fd, bytes.data() + sent,
                                 static_cast<std::size_t>(got - sent), MSG_NOSIGNAL);
        if (n <= 0) return;
        sent += n;
      }
    }
  }
}

class NetworkTest : public TransferTest {
 protected:
  void SetUp() override {
    TransferTest::SetUp();
    std::ofstream(ca_path_) << authority().pem();
    options_.ca_bundle = ca_path_;
    options_.hedge_fraction = 0;
  }
  void TearDown() override {
    TransferTest::TearDown();
    other_.reset();
  }
  SSL_CTX* server_tls(const TestAuthority::Leaf& leaf = {}) {
    contexts_.emplace_back(authority().server_context(leaf));
    return contexts_.back().get();
  }
  void start_tls(ScriptedServer::Script script = nullptr, const TestAuthority::Leaf& leaf = {},
                 const std::string& host = "127.0.0.1") {
    server_ = std::make_unique<ScriptedServer>(std::move(script), 1 << 20, server_tls(leaf));
    open({host, server_->port(), true});
  }
  void open(HttpEndpoint endpoint, const Environment& environment = {}) {
    auto network = resolve_net_settings(options_, environment);
    ASSERT_TRUE(network) << network.error().message();
    protocol_ = std::make_shared<FakeProtocol>(std::move(endpoint));
    auto engine = TransferEngine::create(protocol_, options_, *std::move(network));
    ASSERT_TRUE(engine) << engine.error().message();
    engine_ = *std::move(engine);
    handle_ = engine_->new_handle();
  }
  std::string url_of(const ScriptedServer& server, const std::string& path) {
    return "http://127.0.0.1:" + std::to_string(server.port()) + path;
  }
  static std::string moved(int status, const std::string& location) {
    return ScriptedServer::head(status, 0, "Location: " + location + "\r\n");
  }

  TemporaryDirectory directory_;
  const std::string ca_path_ = directory_.path() + "/ca.pem";
  std::vector<std::unique_ptr<SSL_CTX, ContextDeleter>> contexts_;
  std::shared_ptr<FakeProtocol> protocol_;
  std::unique_ptr<ScriptedServer> other_;
};

// --- TLS ---

TEST_P(NetworkTest, GetsAndPutsOverTls) {
  std::string body;
  start_tls([&](const SeenRequest& request, Peer& peer) {
    if (!request.body.empty()) body = request.body;
    server_->answer(request, peer);
  });
  for (const std::uint64_t bytes : {10ULL, 16'000ULL, 500'000ULL, 1ULL << 20})
    expect_content(transfer(get(0, bytes)), 0, bytes);
  Request upload = put(1 << 20);
  const std::string sent(reinterpret_cast<const char*>(upload.slab.bytes().data()), 1 << 20);
  const Completion stored = transfer(std::move(upload));
  EXPECT_TRUE(stored.status.ok()) << stored.status.message();
  stop_all();
  EXPECT_TRUE(body == sent);
  EXPECT_EQ(server_->connection_count(), 1U);
}

TEST_P(NetworkTest, ManyTlsConnectionsAtOnce) {
  start_tls();
  std::vector<Request> requests;
  for (std::uint64_t i = 0; i < 40; ++i) requests.push_back(get(i * 1000, 100'000, i));
  ASSERT_EQ(handle_->submit(requests), 40U);
  for (int i = 0; i < 40; ++i) {
    const Completion completion = take();
    expect_content(completion, completion.tag * 1000, 100'000);
  }
}

TEST_P(NetworkTest, OldTlsAndOtherCiphersWorkAsWell) {
  for (const bool is_old : {true, false}) {
    SSL_CTX* context = server_tls();
    if (is_old) SSL_CTX_set_max_proto_version(context, TLS1_2_VERSION);
    if (!is_old) SSL_CTX_set_ciphersuites(context, "TLS_CHACHA20_POLY1305_SHA256");
    server_ = std::make_unique<ScriptedServer>(nullptr, 1 << 20, context);
    open({"127.0.0.1", server_->port(), true});
    expect_content(transfer(get(7, 300'000)), 7, 300'000);
    expect_content(transfer(get(0, 100)), 0, 100);
    stop_all();
  }
}

TEST_P(NetworkTest, CertificateErrorsAreFinal) {
  start_tls(nullptr, {"DNS:example.com"});
  const Completion completion = transfer(get(0, 10));
  EXPECT_EQ(completion.status.code(), Code::kDenied);
  EXPECT_THAT(text(completion.status.message()), HasSubstr("127.0.0.1 is not accepted"));
  EXPECT_THAT(text(completion.status.message()), HasSubstr("attempt 1 of"));
  EXPECT_EQ(server_->connection_count(), 1U);
}

TEST_P(NetworkTest, ResumesSessionsOnNewConnections) {
  start_tls([this](const SeenRequest& request, Peer& peer) {
    server_->answer(request, peer);
    peer.close();
  });
  for (int i = 0; i < 3; ++i) expect_content(transfer(get(0, 5000)), 0, 5000);
  EXPECT_GE(metric("store.tls_handshakes"), 3);
  EXPECT_GE(metric("store.tls_resumptions"), 2);
}

TEST_P(NetworkTest, StreamThatEndsWithoutCloseNotifyIsNoBody) {
  options_.max_attempts = 1;
  start_tls([](const SeenRequest&, Peer& peer) {
    peer.send("HTTP/1.1 200 OK\r\n\r\n0123");  // until the end of the stream, which is cut off
    peer.close();
  });
  HttpCall call;
  call.path = "x";
  call.what = "CALL x";
  const auto answer = engine_->call(call);
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error().code(), Code::kUnavailable);
  EXPECT_THAT(text(answer.error().message()), HasSubstr("without TLS close_notify"));
}

TEST_P(NetworkTest, StalledHandshakeTimesOut) {
  options_.connect_timeout = 50ms;
  options_.max_attempts = 2;
  server_ = std::make_unique<ScriptedServer>([](const SeenRequest&, Peer&) {});  // reads, is silent
  open({"127.0.0.1", server_->port(), true});
  const Completion completion = transfer(get(0, 10));
  EXPECT_EQ(completion.status.code(), Code::kUnavailable);
  EXPECT_THAT(text(completion.status.message()), HasSubstr("TLS handshake with 127.0.0.1:"));
}

TEST_P(NetworkTest, CancelDuringTheHandshakeEndsAtOnce) {
  server_ = std::make_unique<ScriptedServer>([](const SeenRequest&, Peer&) {});
  open({"127.0.0.1", server_->port(), true});
  Request request = get(0, 10, 7);
  ASSERT_EQ(handle_->submit({&request, 1}), 1U);
  while (server_->connection_count() == 0) std::this_thread::yield();
  handle_->cancel(7);
  EXPECT_EQ(take().status.code(), Code::kCancelled);
}

TEST_P(NetworkTest, PlainServerIsNamedAsSuch) {
  RawServer server([](int fd) {
    char hello[64];
    if (::recv(fd, hello, sizeof(hello), 0) <= 0) return;
    constexpr std::string_view kAnswer = "HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n";
    static_cast<void>(::send(fd, kAnswer.data(), kAnswer.size(), MSG_NOSIGNAL));
    while (::recv(fd, hello, sizeof(hello), 0) > 0) {
    }
  });
  open({"127.0.0.1", server.port(), true});
  const Completion completion = transfer(get(0, 10));
  EXPECT_EQ(completion.status.code(), Code::kUnsupported);
  EXPECT_THAT(text(completion.status.message()), HasSubstr("does not speak TLS on this port"));
  EXPECT_EQ(completion.attempts, 1U);
  stop_all();
}

// --- redirects ---

TEST_P(NetworkTest, FollowsRedirectsToOtherHostsWithoutCredentials) {
  std::string seen;
  other_ = std::make_unique<ScriptedServer>([&](const SeenRequest& request, Peer& peer) {
    seen = request.head;
    other_->answer(request, peer);
  });
  start([this](const SeenRequest&, Peer& peer) {
    peer.send(moved(307, url_of(*other_, "/node/object?x=1")));
  });
  for (int i = 0; i < 3; ++i) {
    const Completion completion = transfer(get(5, 1000));
    expect_content(completion, 5, 1000);
    EXPECT_EQ(completion.attempts, 1U);
  }
  EXPECT_EQ(server_->connection_count(), 1U);
  EXPECT_EQ(other_->connection_count(), 1U);
  EXPECT_EQ(metric("store.redirects"), 3);
  stop_all();
  other_->stop();
  EXPECT_THAT(seen, HasSubstr("GET /node/object?x=1 HTTP/1.1\r\nHost: 127.0.0.1:"));
  EXPECT_EQ(seen.find("X-Secret"), std::string::npos);
}

TEST_P(NetworkTest, RedirectedPutKeepsItsBody) {
  std::string body;
  other_ = std::make_unique<ScriptedServer>([&](const SeenRequest& request, Peer& peer) {
    body = request.body;
    other_->answer(request, peer);
  });
  start([this](const SeenRequest&, Peer& peer) {
    peer.send(moved(307, url_of(*other_, "/object")));
  });
  const Completion completion = transfer(put(100'000));
  EXPECT_TRUE(completion.status.ok()) << completion.status.message();
  stop_all();
  other_->stop();
  EXPECT_EQ(body.size(), 100'000U);
}

TEST_P(NetworkTest, LoopsOfRedirectsEnd) {
  start([](const SeenRequest&, Peer& peer) { peer.send(moved(302, "/again")); });
  const Completion completion = transfer(get(0, 10));
  EXPECT_EQ(completion.status.code(), Code::kUnsupported);
  EXPECT_THAT(text(completion.status.message()), HasSubstr("more than 5 times"));
  EXPECT_EQ(server_->request_count(), 3 * 6U);  // three attempts of a request and five hops
}

TEST_P(NetworkTest, NeverGoesFromHttpsToHttp) {
  start_tls([](const SeenRequest&, Peer& peer) { peer.send(moved(301, "http://127.0.0.1:1/x")); });
  const Completion completion = transfer(get(0, 10));
  EXPECT_EQ(completion.status.code(), Code::kDenied);
  EXPECT_THAT(text(completion.status.message()), HasSubstr("from https to http"));
}

TEST_P(NetworkTest, RetriesOfRedirectedRequestsStartOverAtHome) {
  start([this](const SeenRequest& request, Peer& peer) {
    if (request.index == 0) return peer.send(moved(307, "http://127.0.0.1:1/gone"));
    server_->answer(request, peer);
  });
  const Completion completion = transfer(get(0, 1000));
  expect_content(completion, 0, 1000);
  EXPECT_EQ(completion.attempts, 2U);
}

// --- proxies ---

TEST_P(NetworkTest, HttpTargetsGoThroughProxiesInAbsoluteForm) {
  std::string seen;
  server_ = std::make_unique<ScriptedServer>([&](const SeenRequest& request, Peer& peer) {
    seen = request.head;
    server_->answer(request, peer);
  });
  Environment environment;
  environment.variables["http_proxy"] =
      "http://user:p%40ss@127.0.0.1:" + std::to_string(server_->port());
  open({"store.invalid", 8080, false}, environment);
  expect_content(transfer(get(0, 1000)), 0, 1000);
  stop_all();
  EXPECT_THAT(seen, HasSubstr("GET http://store.invalid:8080/object HTTP/1.1\r\n"));
  EXPECT_THAT(seen, HasSubstr("Proxy-Authorization: Basic dXNlcjpwQHNz\r\n"));
}

TEST_P(NetworkTest, HttpsTargetsGoThroughTunnels) {
  server_ = std::make_unique<ScriptedServer>(nullptr, 1 << 20, server_tls({"DNS:store.invalid"}));
  std::string seen;
  RawServer proxy([&](int fd) {
    char c = 0;
    while (seen.find("\r\n\r\n") == std::string::npos && ::recv(fd, &c, 1, 0) == 1) seen += c;
    constexpr std::string_view kAnswer = "HTTP/1.1 200 Connected\r\nVia: test\r\n\r\n";
    static_cast<void>(::send(fd, kAnswer.data(), kAnswer.size(), MSG_NOSIGNAL));
    pass_on(fd, server_->port());
  });
  options_.proxy = "http://me:secret@127.0.0.1:" + std::to_string(proxy.port());
  options_.max_in_flight = 1;
  open({"store.invalid", 443, true});
  expect_content(transfer(get(7, 300'000)), 7, 300'000);
  Request upload = put(300'000);
  EXPECT_TRUE(transfer(std::move(upload)).status.ok());
  EXPECT_EQ(server_->connection_count(), 1U);
  stop_all();
  proxy.stop();
  EXPECT_THAT(seen, HasSubstr("CONNECT store.invalid:443 HTTP/1.1\r\nHost: store.invalid:443\r\n"));
  EXPECT_THAT(seen, HasSubstr("Proxy-Authorization: Basic bWU6c2VjcmV0\r\n"));
  EXPECT_EQ(seen.find("X-Secret"), std::string::npos);
}

TEST_P(NetworkTest, RefusedTunnelsSayWhy) {
  std::string seen;
  server_ = std::make_unique<ScriptedServer>([&](const SeenRequest& request, Peer& peer) {
    seen = request.head;
    peer.send("HTTP/1.1 407 Who\r\nContent-Length: 0\r\n\r\n");
  });
  options_.proxy = "http://me:secret@127.0.0.1:" + std::to_string(server_->port());
  open({"store.invalid", 443, true});
  const Completion completion = transfer(get(0, 10));
  EXPECT_EQ(completion.status.code(), Code::kDenied);
  EXPECT_THAT(text(completion.status.message()),
              HasSubstr("refuses the connection to store.invalid: HTTP 407"));
  EXPECT_EQ(text(completion.status.message()).find("secret"), std::string::npos);
  stop_all();
  EXPECT_THAT(
      seen,
      HasSubstr("CONNECT store.invalid:443 HTTP/1.1\r\nHost: store.invalid:443\r\nProxy-Auth"));
}

TEST_P(NetworkTest, DownProxyIsTransient) {
  options_.proxy = "127.0.0.1:1";
  options_.max_attempts = 1;
  open({"store.invalid", 443, true});
  const Completion completion = transfer(get(0, 10));
  EXPECT_EQ(completion.status.code(), Code::kUnavailable);
  EXPECT_THAT(text(completion.status.message()), HasSubstr("127.0.0.1:1: connection refused"));
}

// --- checksums, credentials ---

TEST_P(NetworkTest, BodiesAreCheckedAgainstTheirChecksums) {
  start();
  const std::string good = server_->content(0, 999);
  for (const bool is_crc32c : {true, false}) {
    open({"127.0.0.1", server_->port(), false});
    const auto bytes = std::as_bytes(std::span(good));
    protocol_->checksum = is_crc32c ? Checksum{ChecksumKind::kCrc32c, crc32c(bytes)}
                                    : Checksum{ChecksumKind::kCrc64Nvme, crc64nvme(bytes)};
    expect_content(transfer(get(0, 1000)), 0, 1000);
    EXPECT_EQ(metric("store.checksum_failures"), 0);
  }
}

TEST_P(NetworkTest, DamagedBodiesAreTriedAgainOnFreshConnections) {
  start();
  const std::string good = server_->content(0, 999);
  server_ = std::make_unique<ScriptedServer>([&](const SeenRequest& request, Peer& peer) {
    std::string body = good;
    if (request.index < 2) body[500] = static_cast<char>(~body[500]);
    peer.send(ScriptedServer::head(206, 1000, "Content-Range: bytes 0-999/1048576\r\n") + body);
  });
  open({"127.0.0.1", server_->port(), false});
  protocol_->checksum = {ChecksumKind::kCrc32c, crc32c(std::as_bytes(std::span(good)))};
  const Completion completion = transfer(get(0, 1000));
  expect_content(completion, 0, 1000);
  EXPECT_EQ(completion.attempts, 3U);
  EXPECT_EQ(server_->connection_count(), 3U);
  EXPECT_EQ(metric("store.checksum_failures"), 2);
  protocol_->checksum.value ^= 1;
  const Completion bad = transfer(get(0, 1000));
  EXPECT_EQ(bad.status.code(), Code::kCorrupt);
  EXPECT_THAT(text(bad.status.message()), HasSubstr("checksum"));
  stop_all();
}

TEST_P(NetworkTest, CredentialsUnderWayAreWaitedForWithoutCounting) {
  start();
  open({"127.0.0.1", server_->port(), false});
  protocol_->not_ready_count = 3;
  const Completion completion = transfer(get(0, 1000));
  expect_content(completion, 0, 1000);
  EXPECT_EQ(completion.attempts, 1U);
  protocol_->not_ready_count = 1 << 30;
  const Completion late = read_within(30ms);
  EXPECT_EQ(late.status.code(), Code::kDeadline);
  EXPECT_THAT(text(late.status.message()), HasSubstr("no credentials yet"));
}

TEST_P(NetworkTest, UploadsReportTheirChecksum) {
  start([](const SeenRequest&, Peer& peer) {
    peer.send(ScriptedServer::head(200, 0, "ETag: \"e\"\r\nX-Sum: abc=\r\n"));
  });
  EXPECT_EQ(transfer(put(100)).checksum, "abc=");
}

INSTANTIATE_TEST_SUITE_P(Kinds, NetworkTest,
                         testing::Values(PollerKind::kUring, PollerKind::kEpoll),
                         [](const auto& kind) {
                           return kind.param == PollerKind::kUring ? "Uring" : "Epoll";
                         });

}  // namespace
}  // namespace headrace
