#pragma once
/// \file
/// For tests: an HTTP server on loopback whose answers, good or bad, are written by the test, and a
/// protocol without vendor.
#include <openssl/ssl.h>
#include <sys/socket.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/mutex.h"
#include "store/http_protocol.h"

namespace headrace::transfer {

/// One request as the server saw it.
struct SeenRequest {
  std::string head;
  std::string body;
  std::size_t connection = 0;         ///< Counts from 0.
  std::size_t on_connection = 0;      ///< Requests before it on this connection.
  std::size_t index = 0;              ///< Requests before it on all connections.
  std::uint64_t first = 0, last = 0;  ///< Of the Range header.
};

/// The server's side of a connection.
class Peer {
 public:
  explicit Peer(int fd, SSL* tls = nullptr) : fd_(fd), tls_(tls) {}
  void send(std::string_view bytes);
  /// Ends with a TCP reset, or in order.
  void reset();
  void close();
  bool is_open() const { return is_open_; }
  /// Reads up to so many of the client's bytes; how many it was.
  std::size_t drop(std::size_t most_bytes);
  /// Waits until the client has gone. Reads its bytes meanwhile, about `most_bytes` of them.
  void wait_for_client_to_leave(std::size_t most_bytes = SIZE_MAX);

 private:
  const int fd_;
  SSL* const tls_;
  bool is_open_ = true;
};

class ScriptedServer {
 public:
  using Script = std::function<void(const SeenRequest&, Peer&)>;
  /// Object of `object_bytes` whose byte i is content_byte(i); `script` answers instead when given.
  /// `tls`: speaks TLS with this context, which outlives it.
  explicit ScriptedServer(Script script = nullptr, std::uint64_t object_bytes = 1 << 20,
                          SSL_CTX* tls = nullptr);
  ~ScriptedServer() { stop(); }
  /// Ends all connections and threads: afterwards no script runs.
  void stop();

  std::uint16_t port() const { return port_; }
  std::size_t connection_count() const { return connection_count_.load(); }
  std::size_t request_count() const { return request_count_.load(); }
  /// The correct answer to a range request.
  void answer(const SeenRequest& request, Peer& peer) const;
  std::string content(std::uint64_t first, std::uint64_t last) const;
  static char content_byte(std::uint64_t index) {
    return static_cast<char>((index * 2654435761U) >> 11);
  }
  static std::string head(int status, std::uint64_t content_length, const std::string& more = {});

 private:
  void accept_loop();
  void serve(int fd, std::size_t connection);
  bool read_request(int fd, SSL* tls, std::string& buffer, SeenRequest& request);

  const Script script_;
  const std::uint64_t object_bytes_;
  SSL_CTX* const tls_;
  int listen_fd_ = -1;
  std::uint16_t port_ = 0;
  std::atomic<std::size_t> connection_count_{0};
  std::atomic<std::size_t> request_count_{0};
  Mutex mutex_;
  std::vector<int> fds_ HEADRACE_GUARDED_BY(mutex_);
  std::vector<std::thread> threads_ HEADRACE_GUARDED_BY(mutex_);
  bool is_stopping_ HEADRACE_GUARDED_BY(mutex_) = false;
  std::thread acceptor_;  // joined by stop()
};

/// A port of loopback that refuses connections, and that nobody else gets meanwhile.
class DeafPort {
 public:
  DeafPort();
  ~DeafPort();
  DeafPort(const DeafPort&) = delete;
  DeafPort& operator=(const DeafPort&) = delete;
  std::uint16_t port() const { return port_; }

 private:
  const int fd_;
  const std::uint16_t port_;
};

/// Unsigned requests, path-style, and HTTP status alone decides.
class FakeProtocol final : public HttpProtocol {
 public:
  explicit FakeProtocol(std::uint16_t port, std::string host = "127.0.0.1")
      : endpoint_{std::move(host), port, false} {}
  explicit FakeProtocol(HttpEndpoint endpoint) : endpoint_(std::move(endpoint)) {}
  const HttpEndpoint& endpoint() const noexcept override { return endpoint_; }
  Status append_head(const Request& request, const HeadContext& context, std::string& out) override;
  Status append_head(const HttpCall& call, const HeadContext& context, std::string& out) override;
  Status error_from(std::string_view what, const http::ResponseHead& head,
                    std::string_view body) override;
  Status check_answer(const HttpCall& call, const HttpAnswer& answer) override;
  std::string describe(const Request& request) const override;
  bool follows_redirects() const noexcept override { return true; }
  Checksum checksum_of(const Request&, const http::ResponseHead&) const override {
    return checksum;
  }
  void append_checksum(const Request&, const http::ResponseHead& head,
                       std::string& out) const override {
    out.append(head.header("x-sum"));
  }

  int not_ready_count = 0;  ///< Heads refused before credentials are there. Set before use.
  Checksum checksum;        ///< What each answer announces. Set before use.

 private:
  const HttpEndpoint endpoint_;
};

}  // namespace headrace::transfer
