#include "auth/web_client.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <fstream>
#include <functional>
#include <thread>

#include "base/temporary_directory.h"
#include "headrace/clock.h"
#include "net/dead_address.h"
#include "net/tls_test_peer.h"

namespace headrace::auth {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

/// Answers one connection with one text, over TLS when given a context.
class OneAnswer {
 public:
  explicit OneAnswer(std::string answer, SSL_CTX* tls = nullptr)
      : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::bind(fd_, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    EXPECT_EQ(::listen(fd_, 4), 0);
    socklen_t size_bytes = sizeof(address);
    ::getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &size_bytes);
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this, answer = std::move(answer), tls] { serve(answer, tls); });
  }
  ~OneAnswer() { stop(); }
  void stop() {
    if (!thread_.joinable()) return;
    ::shutdown(fd_, SHUT_RDWR);
    thread_.join();
    ::close(fd_);
  }
  std::string url(const std::string& path, const std::string& scheme = "http") const {
    return scheme + "://127.0.0.1:" + std::to_string(port_) + path;
  }
  std::uint16_t port() const { return port_; }
  const std::string& seen() {
    stop();
    return seen_;
  }

 private:
  void serve(const std::string& answer, SSL_CTX* tls) {
    const int fd = ::accept(fd_, nullptr, nullptr);
    if (fd < 0) return;
    SSL* ssl = tls != nullptr ? SSL_new(tls) : nullptr;
    if (ssl != nullptr) SSL_set_fd(ssl, fd);
    if (ssl == nullptr || SSL_accept(ssl) == 1) {
      char bytes[4096];
      while (seen_.find("\r\n\r\n") == std::string::npos) {
        const ssize_t n = ssl != nullptr ? SSL_read(ssl, bytes, sizeof(bytes))
                                         : ::recv(fd, bytes, sizeof(bytes), 0);
        if (n <= 0) break;
        seen_.append(bytes, static_cast<std::size_t>(n));
      }
      if (ssl != nullptr) {
        SSL_write(ssl, answer.data(), static_cast<int>(answer.size()));
        SSL_shutdown(ssl);
      } else {
        ::send(fd, answer.data(), answer.size(), MSG_NOSIGNAL);
      }
      // An empty answer is a server that never says anything.
      while (answer.empty() && ::recv(fd, bytes, sizeof(bytes), 0) > 0) {
      }
    }
    SSL_free(ssl);
    ::close(fd);
  }

  const int fd_;
  std::uint16_t port_ = 0;
  std::string seen_;
  std::thread thread_;
};

WebRequest get(std::string url) {
  WebRequest request;
  request.url = std::move(url);
  return request;
}

TEST(WebClient, ExchangesOneMessage) {
  OneAnswer server("HTTP/1.1 201 C\r\nX-Thing: Value\r\nContent-Length: 5\r\n\r\nhello");
  WebRequest request = get(server.url("/a?b=c"));
  request.method = "PUT";
  request.headers = {{"X-Ask", "1"}};
  request.body = "body";
  auto answer = create_web_client({})->fetch(request, {});
  ASSERT_TRUE(answer) << answer.error().message();
  EXPECT_EQ(answer->status, 201);
  EXPECT_EQ(answer->body, "hello");
  EXPECT_EQ(answer->headers.front(), (std::pair<std::string, std::string>("x-thing", "Value")));
  EXPECT_THAT(server.seen(), HasSubstr("PUT /a?b=c HTTP/1.1\r\nHost: 127.0.0.1:"));
  EXPECT_THAT(server.seen(), HasSubstr("X-Ask: 1\r\nContent-Length: 4\r\n"));
}

TEST(WebClient, ReadsChunkedAndUnboundedBodies) {
  OneAnswer chunked(
      "HTTP/1.1 200 O\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n1\r\nc\r\n0\r\n\r\n");
  auto answer = create_web_client({})->fetch(get(chunked.url("/")), {});
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->body, "abc");
  OneAnswer unbounded("HTTP/1.1 200 O\r\n\r\nabcd");
  answer = create_web_client({})->fetch(get(unbounded.url("/")), {});
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->body, "abcd");
}

TEST(WebClient, SpeaksTlsAndChecksTheServer) {
  const TestAuthority authority;
  const TemporaryDirectory directory;
  const std::string path = directory.path() + "/ca.pem";
  std::ofstream(path) << authority.pem();
  SSL_CTX* context = authority.server_context({});
  Environment environment;
  environment.variables["SSL_CERT_FILE"] = path;
  {
    OneAnswer server("HTTP/1.1 200 O\r\nContent-Length: 2\r\n\r\nok", context);
    auto answer = create_web_client(environment)->fetch(get(server.url("/", "https")), {});
    ASSERT_TRUE(answer) << answer.error().message();
    EXPECT_EQ(answer->body, "ok");
  }
  OneAnswer server("HTTP/1.1 200 O\r\nContent-Length: 2\r\n\r\nok", context);
  const auto answer = create_web_client({})->fetch(get(server.url("/", "https")), {});
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error().code(), Code::kUnavailable);
  EXPECT_THAT(std::string(answer.error().message()), HasSubstr("is not accepted"));
  server.stop();
  SSL_CTX_free(context);
}

TEST(WebClient, GoesThroughProxies) {
  OneAnswer proxy("HTTP/1.1 200 O\r\nContent-Length: 0\r\n\r\n");
  Environment environment;
  environment.variables["http_proxy"] = "u:p@127.0.0.1:" + std::to_string(proxy.port());
  ASSERT_TRUE(create_web_client(environment)->fetch(get("http://token.invalid/x"), {}));
  EXPECT_THAT(proxy.seen(), HasSubstr("GET http://token.invalid/x HTTP/1.1\r\n"));
  EXPECT_THAT(proxy.seen(), HasSubstr("Proxy-Authorization: Basic dTpw\r\n"));
}

TEST(WebClient, AsksServicesOfThisMachineWithoutAProxy) {
  const Environment environment{{{"http_proxy", "socks5://x:1"}}};
  WebClientOptions options;
  options.resolver = [](const std::string&) -> Result<std::vector<std::string>> {
    return std::vector<std::string>{"127.0.0.1"};
  };
  const auto client = create_web_client(environment, options);
  // Nobody is there, but it is not the proxy that is at fault.
  for (const char* url : {"http://127.0.0.1:1/msi/token", "http://127.0.0.2:1/", "http://[::1]:1/",
                          "http://localhost:1/creds", "http://[fd00:ec2::23]:1/v1/credentials"}) {
    WebRequest request = get(url);
    request.connect_timeout = 50ms;
    EXPECT_EQ(client->fetch(request, {}).error().code(), Code::kUnavailable) << url;
  }
  OneAnswer server("HTTP/1.1 200 O\r\nContent-Length: 0\r\n\r\n");
  WebRequest request = get("http://meta.example:" + std::to_string(server.port()) + "/");
  EXPECT_EQ(client->fetch(request, {}).error().code(), Code::kUnsupported);
  request.is_local = true;
  EXPECT_TRUE(client->fetch(request, {}));
}

TEST(WebClient, DeadAddressTakesNotAllOfTheTime) {
  OneAnswer server("HTTP/1.1 200 O\r\nContent-Length: 0\r\n\r\n");
  const DeadAddress dead(server.port());
  if (!dead.is_there()) GTEST_SKIP() << "no 127.0.0.2";
  WebClientOptions options;
  options.resolver = [](const std::string&) -> Result<std::vector<std::string>> {
    return std::vector<std::string>{"127.0.0.2", "127.0.0.1"};
  };
  WebRequest request = get("http://two-addresses.example:" + std::to_string(server.port()) + "/");
  request.timeout = request.connect_timeout = 5s;
  const TimePoint before = system_clock().now();
  const auto answer = create_web_client({}, options)->fetch(request, {});
  ASSERT_TRUE(answer) << answer.error().message();
  EXPECT_LT(system_clock().now() - before, 3s);
}

TEST(WebClient, ReportsWhatWentWrong) {
  const auto client = create_web_client({{{"http_proxy", "socks5://x:1"}}});
  const auto direct = create_web_client({});
  EXPECT_EQ(direct->fetch(get("ftp://x"), {}).error().code(), Code::kInvalidArgument);
  EXPECT_EQ(direct->fetch(get("http://127.0.0.1:1/"), {}).error().code(), Code::kUnavailable);
  EXPECT_EQ(client->fetch(get("http://host/"), {}).error().code(), Code::kUnsupported);
  OneAnswer garbage("220 smtp\r\n\r\n");
  EXPECT_EQ(direct->fetch(get(garbage.url("/")), {}).error().code(), Code::kCorrupt);
  OneAnswer cut("HTTP/1.1 200 O\r\nContent-Length: 9\r\n\r\nabc");
  EXPECT_EQ(direct->fetch(get(cut.url("/")), {}).error().code(), Code::kUnavailable);
}

TEST(WebClient, EndsInTimeAndOnRequest) {
  OneAnswer silent("");
  WebRequest request = get(silent.url("/"));
  request.timeout = 30ms;
  const auto late = create_web_client({})->fetch(request, {});
  ASSERT_FALSE(late);
  EXPECT_EQ(late.error().code(), Code::kUnavailable);
  EXPECT_THAT(std::string(late.error().message()), HasSubstr("timed out"));
  OneAnswer other("");
  std::stop_source stop;
  const auto client = create_web_client({});
  std::thread stopper([&] { stop.request_stop(); });
  const auto stopped = client->fetch(get(other.url("/")), stop.get_token());
  stopper.join();
  ASSERT_FALSE(stopped);
  EXPECT_EQ(stopped.error().code(), Code::kCancelled);
}

}  // namespace
}  // namespace headrace::auth
