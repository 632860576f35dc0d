// Implementation of scripted_server.h; in a *_test.cc so that it is part of the test program only.
#include "store/transfer/scripted_server.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <charconv>

namespace headrace::transfer {
namespace {

/// Gives the socket a free port of 127.0.0.1.
std::uint16_t bind_to_loopback(int fd) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(::bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  socklen_t size_bytes = sizeof(address);
  EXPECT_EQ(::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size_bytes), 0);
  return ntohs(address.sin_port);
}

}  // namespace

void Peer::send(std::string_view bytes) {
  while (is_open_ && !bytes.empty()) {
    const ssize_t n = tls_ != nullptr
                          ? SSL_write(tls_, bytes.data(), static_cast<int>(bytes.size()))
                          : ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (n <= 0) return;
    bytes.remove_prefix(static_cast<std::size_t>(n));
  }
}

void Peer::reset() {
  const linger hard{1, 0};
  ::setsockopt(fd_, SOL_SOCKET, SO_LINGER, &hard, sizeof(hard));
  is_open_ = false;
}

void Peer::close() { is_open_ = false; }

std::size_t Peer::drop(std::size_t most_bytes) {
  char bytes[4096];
  std::size_t read_bytes = 0;
  while (read_bytes < most_bytes) {
    const ssize_t count = ::recv(fd_, bytes, std::min(sizeof(bytes), most_bytes - read_bytes), 0);
    if (count <= 0) break;
    read_bytes += static_cast<std::size_t>(count);
  }
  return read_bytes;
}

void Peer::wait_for_client_to_leave(std::size_t most_bytes) {
  pollfd leaving{.fd = fd_, .events = POLLRDHUP, .revents = 0};
  if (drop(most_bytes) == most_bytes) ::poll(&leaving, 1, -1);
  is_open_ = false;
}

DeafPort::DeafPort()
    : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)), port_(bind_to_loopback(fd_)) {}

DeafPort::~DeafPort() { ::close(fd_); }

ScriptedServer::ScriptedServer(Script script, std::uint64_t object_bytes, SSL_CTX* tls)
    : script_(std::move(script)), object_bytes_(object_bytes), tls_(tls) {
  listen_fd_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  // What no script reads stays with the client: some systems would take 32 MiB of it.
  const int window_bytes = 256 << 10;
  EXPECT_EQ(::setsockopt(listen_fd_, SOL_SOCKET, SO_RCVBUF, &window_bytes, sizeof(window_bytes)),
            0);
  port_ = bind_to_loopback(listen_fd_);
  EXPECT_EQ(::listen(listen_fd_, 64), 0);
  acceptor_ = std::thread([this] { accept_loop(); });
}

void ScriptedServer::stop() {
  if (!acceptor_.joinable()) return;
  {
    MutexLock lock(mutex_);
    is_stopping_ = true;
    for (const int fd : fds_) {
      if (fd >= 0) ::shutdown(fd, SHUT_RDWR);
    }
  }
  ::shutdown(listen_fd_, SHUT_RDWR);
  acceptor_.join();
  std::vector<std::thread> threads;
  {
    MutexLock lock(mutex_);
    threads.swap(threads_);
  }
  for (std::thread& thread : threads) thread.join();
  ::close(listen_fd_);
}

void ScriptedServer::accept_loop() {
  for (;;) {
    const int fd = ::accept4(listen_fd_, nullptr, nullptr, SOCK_CLOEXEC);
    MutexLock lock(mutex_);
    if (fd < 0 || is_stopping_) {
      if (fd >= 0) ::close(fd);
      return;
    }
    const std::size_t connection = connection_count_.fetch_add(1);
    fds_.push_back(fd);
    threads_.emplace_back([this, fd, connection] { serve(fd, connection); });
  }
}

bool ScriptedServer::read_request(int fd, SSL* tls, std::string& buffer, SeenRequest& request) {
  std::size_t end = 0;
  const auto more = [&] {
    char bytes[65536];
    const ssize_t n =
        tls != nullptr ? SSL_read(tls, bytes, sizeof(bytes)) : ::recv(fd, bytes, sizeof(bytes), 0);
    if (n > 0) buffer.append(bytes, static_cast<std::size_t>(n));
    return n > 0;
  };
  while ((end = buffer.find("\r\n\r\n")) == std::string::npos) {
    if (!more()) return false;
  }
  request.head = buffer.substr(0, end + 4);
  buffer.erase(0, end + 4);
  std::string head = request.head;
  for (char& c : head) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  const auto number_after = [&](std::string_view name, std::size_t skip) {
    std::uint64_t value = 0;
    const auto at = head.find(name);
    if (at == std::string::npos) return value;
    const char* from = head.data() + at + name.size();
    const char* end_of_head = head.data() + head.size();
    if (skip > 0) from = std::find(from, end_of_head, '-') + 1;
    std::from_chars(from, end_of_head, value);
    return value;
  };
  request.first = number_after("range: bytes=", 0);
  request.last = number_after("range: bytes=", 1);
  const std::uint64_t length = number_after("content-length: ", 0);
  // Bodies are read by the script's choice only when it wants to refuse them early.
  if (request.head.find("X-Refuse") != std::string::npos) return true;
  while (buffer.size() < length) {
    if (!more()) return false;
  }
  request.body = buffer.substr(0, length);
  buffer.erase(0, length);
  return true;
}

void ScriptedServer::serve(int fd, std::size_t connection) {
  sigset_t pipe;  // OpenSSL writes without MSG_NOSIGNAL
  sigemptyset(&pipe);
  sigaddset(&pipe, SIGPIPE);
  pthread_sigmask(SIG_BLOCK, &pipe, nullptr);
  const int on = 1;  // TLS writes an answer record by record
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  SSL* tls = nullptr;
  if (tls_ != nullptr) {
    tls = SSL_new(tls_);
    SSL_set_fd(tls, fd);
  }
  const bool is_ready = tls == nullptr || SSL_accept(tls) == 1;
  Peer peer(fd, tls);
  if (!is_ready) peer.close();
  std::string buffer;
  for (std::size_t count = 0; peer.is_open(); ++count) {
    SeenRequest request;
    request.connection = connection;
    request.on_connection = count;
    if (!read_request(fd, tls, buffer, request)) break;
    request.index = request_count_.fetch_add(1);
    script_ ? script_(request, peer) : answer(request, peer);
  }
  if (tls != nullptr) SSL_set_shutdown(tls, SSL_SENT_SHUTDOWN | SSL_RECEIVED_SHUTDOWN);
  SSL_free(tls);
  MutexLock lock(mutex_);
  std::replace(fds_.begin(), fds_.end(), fd, -1);
  ::close(fd);
}

std::string ScriptedServer::content(std::uint64_t first, std::uint64_t last) const {
  std::string text;
  for (std::uint64_t i = first; i <= last; ++i) text += content_byte(i);
  return text;
}

std::string ScriptedServer::head(int status, std::uint64_t content_length,
                                 const std::string& more) {
  return "HTTP/1.1 " + std::to_string(status) +
         " Some Reason\r\nContent-Length: " + std::to_string(content_length) + "\r\n" + more +
         "\r\n";
}

void ScriptedServer::answer(const SeenRequest& request, Peer& peer) const {
  if (request.head.substr(0, 4) == "PUT ") return peer.send(head(200, 0, "ETag: \"put\"\r\n"));
  const std::string total = std::to_string(object_bytes_);
  if (request.first >= object_bytes_)
    return peer.send(head(416, 0, "Content-Range: bytes */" + total + "\r\n"));
  const std::uint64_t last = std::min(request.last, object_bytes_ - 1);
  peer.send(head(206, last - request.first + 1,
                 "ETag: \"v1\"\r\nContent-Range: bytes " + std::to_string(request.first) + "-" +
                     std::to_string(last) + "/" + total + "\r\n") +
            content(request.first, last));
}

Status FakeProtocol::append_head(const Request& request, const HeadContext& context,
                                 std::string& out) {
  if (not_ready_count > 0) {
    --not_ready_count;
    return Status(Code::kUnavailable, "no credentials yet");
  }
  if (request.key == "refused-key") return Status(Code::kInvalidArgument, "this key is refused");
  char number[24];
  const auto append_number = [&](std::uint64_t value) {
    out.append(number, static_cast<std::size_t>(
                           std::to_chars(number, number + sizeof(number), value).ptr - number));
  };
  out.append(request.op == Op::kGet ? "GET " : "PUT ");
  if (context.redirect != nullptr) {
    out.append(context.redirect->target).append(" HTTP/1.1\r\nHost: ");
    out.append(context.redirect->host_field).append("\r\n");
  } else {
    out.append("/").append(request.key).append(" HTTP/1.1\r\nHost: test\r\nX-Secret: 1\r\n");
  }
  if (request.op == Op::kGet) {
    out.append("Range: bytes=");
    append_number(request.offset_bytes);
    out.append("-");
    append_number(request.offset_bytes + request.length_bytes - 1);
  } else {
    out.append("Content-Length: ");
    append_number(request.length_bytes);
  }
  if (request.key == "refused") out.append("\r\nX-Refuse: 1");
  out.append("\r\n\r\n");
  return {};
}

Status FakeProtocol::append_head(const HttpCall& call, const HeadContext&, std::string& out) {
  out.append(call.method).append(" /").append(call.path).append(" HTTP/1.1\r\nContent-Length: ");
  out.append(std::to_string(call.body.size())).append("\r\n\r\n");
  return {};
}

Status FakeProtocol::error_from(std::string_view what, const http::ResponseHead& head,
                                std::string_view body) {
  Code code = Code::kInternal;
  if (head.status == 404) code = Code::kNotFound;
  if (head.status == 403) code = Code::kDenied;
  if (head.status == 412) code = Code::kChanged;
  if (head.status == 500) code = Code::kUnavailable;
  if (head.status == 503) code = Code::kThrottled;
  return Status(code, std::string(what) + ": HTTP " + std::to_string(head.status) + " " +
                          std::string(body.substr(0, 100)));
}

Status FakeProtocol::check_answer(const HttpCall& call, const HttpAnswer& answer) {
  if (answer.body == "<Error>") return Status(Code::kUnavailable, call.what + ": error inside 200");
  return {};
}

std::string FakeProtocol::describe(const Request& request) const {
  if (request.op != Op::kGet) return "PUT fake://" + std::string(request.key);
  return "GET fake://" + std::string(request.key) + " [" + std::to_string(request.offset_bytes) +
         ", " + std::to_string(request.offset_bytes + request.length_bytes) + ")";
}

}  // namespace headrace::transfer
