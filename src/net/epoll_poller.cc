// An edge is told once, so readiness is remembered until an operation finds the opposite: EAGAIN,
// or fewer bytes than it asked for. To believe wrongly that a socket is ready costs one system
// call; to believe wrongly that it is not would wait for ever. So a new socket counts as ready in
// both directions, and one whose peer has hung up stays readable: no other edge comes for the end
// of the stream.
#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/event_fd.h"
#include "base/fd.h"
#include "net/poller.h"
#include "net/poller_internal.h"

namespace headrace {
namespace {

constexpr std::size_t kEventsPerWait = 128;

bool would_block(int error) { return error == EAGAIN || error == EWOULDBLOCK; }

}  // namespace

/// Edge-triggered: each descriptor is registered once, for both directions, and readiness is
/// remembered in PollSocket.
class EpollPoller final : public Poller {
 public:
  EpollPoller(Fd epoll, EventFd wake) : epoll_(std::move(epoll)), wake_(std::move(wake)) {}

  int open(PollSocket& socket, int family) override {
    const int fd = detail::open_stream_socket(family, SOCK_NONBLOCK);
    return fd < 0 ? fd : add(socket, fd);
  }
  int adopt(PollSocket& socket, int fd) override {
    const int flags = ::fcntl(fd, F_GETFL);
    if (flags < 0 || ::fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0) return -errno;
    return add(socket, fd);
  }
  void close(PollSocket& socket) noexcept override;

  std::optional<std::int64_t> connect(PollSocket& socket, const sockaddr* address,
                                      socklen_t address_bytes) override;
  std::optional<std::int64_t> receive(PollSocket& socket, std::span<std::byte> buffer,
                                      ReceiveMode mode) override;
  std::optional<std::int64_t> send(PollSocket& socket, std::span<const std::byte> head,
                                   std::span<const std::byte> body) override;
  void cancel(PollSocket& socket) override;
  std::size_t poll(std::span<PollEvent> out, std::chrono::nanoseconds timeout) override;
  void wake() noexcept override { wake_.signal(); }
  const char* name() const noexcept override { return "epoll"; }

 private:
  int add(PollSocket& socket, int fd);
  std::optional<std::int64_t> try_receive(PollSocket& socket);
  std::optional<std::int64_t> try_send(PollSocket& socket);
  std::optional<std::int64_t> finish_connect(PollSocket& socket);
  int wait(std::span<epoll_event> events, std::chrono::nanoseconds timeout) const;
  void handle(PollSocket& socket, std::uint32_t mask, std::span<PollEvent> out, std::size_t& count);

  const Fd epoll_;
  const EventFd wake_;
  std::vector<PollEvent> cancelled_;  // events of cancel(), for the next poll()
};

int EpollPoller::add(PollSocket& socket, int fd) {
  HEADRACE_DCHECK(!socket.is_open());
  epoll_event event{};
  event.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET;
  event.data.ptr = &socket;
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) {
    const int error = errno;
    ::close(fd);
    return -error;
  }
  socket.fd_ = fd;
  socket.is_readable_ = true;  // unknown, so the first operation of each direction tries
  socket.is_writable_ = true;
  socket.is_hung_up_ = false;
  return 0;
}

void EpollPoller::close(PollSocket& socket) noexcept {
  if (!socket.is_open()) return;
  HEADRACE_DCHECK(!socket.is_busy());
  // A child that was forked may have the descriptor, too: without these the peer would be told
  // nothing, and the socket stay in the epoll set, as long as that child lives.
  ::shutdown(socket.fd_, SHUT_RDWR);
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, socket.fd_, nullptr);
  ::close(socket.fd_);
  socket.fd_ = -1;
}

std::optional<std::int64_t> EpollPoller::connect(PollSocket& socket, const sockaddr* address,
                                                 socklen_t address_bytes) {
  HEADRACE_DCHECK(!socket.is_sending());
  if (::connect(socket.fd_, address, address_bytes) == 0) return 0;
  if (errno != EINPROGRESS && errno != EINTR) return -errno;
  socket.out_.op = PollOp::kConnect;
  socket.out_.is_pending = true;
  socket.out_.is_cancelled = false;
  socket.is_writable_ = false;
  return std::nullopt;
}

std::optional<std::int64_t> EpollPoller::finish_connect(PollSocket& socket) {
  int error = 0;
  socklen_t size_bytes = sizeof(error);
  if (::getsockopt(socket.fd_, SOL_SOCKET, SO_ERROR, &error, &size_bytes) != 0) return -errno;
  return -error;
}

std::optional<std::int64_t> EpollPoller::receive(PollSocket& socket, std::span<std::byte> buffer,
                                                 ReceiveMode mode) {
  HEADRACE_DCHECK(!socket.is_receiving() && !buffer.empty());
  socket.in_ = {buffer.data(), buffer.size(), 0, mode, true, false};
  // The answer to a request that was sent just now raises a new edge, so nothing is lost by not
  // looking for it yet.
  if (mode == ReceiveMode::kSomeLater && !socket.is_hung_up_) socket.is_readable_ = false;
  if (!socket.is_readable_) return std::nullopt;
  const auto result = try_receive(socket);
  if (result) socket.in_.is_pending = false;
  return result;
}

std::optional<std::int64_t> EpollPoller::try_receive(PollSocket& socket) {
  auto& in = socket.in_;
  for (;;) {
    const std::size_t want_bytes = std::min(in.size_bytes - in.done_bytes, kMaxOperationBytes);
    const ssize_t n = ::recv(socket.fd_, in.data + in.done_bytes, want_bytes, 0);
    if (n < 0) {
      if (errno == EINTR) continue;
      if (!would_block(errno)) return -errno;
      socket.is_readable_ = false;
      return std::nullopt;
    }
    in.done_bytes += static_cast<std::size_t>(n);
    // A short read has emptied the socket, and what comes later raises an edge; except for an end
    // that was seen before.
    if (static_cast<std::size_t>(n) < want_bytes) socket.is_readable_ = socket.is_hung_up_;
    const bool is_done = n == 0 || in.mode != ReceiveMode::kAll || in.done_bytes == in.size_bytes;
    if (is_done) return static_cast<std::int64_t>(in.done_bytes);
    if (!socket.is_readable_) return std::nullopt;
  }
}

std::optional<std::int64_t> EpollPoller::send(PollSocket& socket, std::span<const std::byte> head,
                                              std::span<const std::byte> body) {
  HEADRACE_DCHECK(!socket.is_sending());
  auto& out = socket.out_;
  out.op = PollOp::kSend;
  out.pieces = {detail::to_iovec(head), detail::to_iovec(body)};
  out.done_bytes = 0;
  const auto result = try_send(socket);
  out.is_pending = !result.has_value();
  out.is_cancelled = false;
  return result;
}

std::optional<std::int64_t> EpollPoller::try_send(PollSocket& socket) {
  auto& out = socket.out_;
  while (out.pieces[0].iov_len + out.pieces[1].iov_len > 0) {
    msghdr message{};
    message.msg_iov = out.pieces.data();
    message.msg_iovlen = out.pieces[1].iov_len > 0 ? 2 : 1;
    const ssize_t n = ::sendmsg(socket.fd_, &message, MSG_NOSIGNAL);
    if (n < 0) {
      if (errno == EINTR) continue;
      if (!would_block(errno)) return -errno;
      socket.is_writable_ = false;
      return std::nullopt;
    }
    out.done_bytes += static_cast<std::size_t>(n);
    detail::drop_front(out.pieces, static_cast<std::size_t>(n));
  }
  return static_cast<std::int64_t>(out.done_bytes);
}

void EpollPoller::cancel(PollSocket& socket) {
  // With readiness the kernel never holds a buffer: nothing to wait for, but the events come from
  // poll() all the same.
  if (socket.in_.is_pending && !socket.in_.is_cancelled) {
    socket.in_.is_cancelled = true;
    cancelled_.push_back({&socket, PollOp::kReceive, -ECANCELED});
  }
  if (socket.out_.is_pending && !socket.out_.is_cancelled) {
    socket.out_.is_cancelled = true;
    cancelled_.push_back({&socket, socket.out_.op, -ECANCELED});
  }
}

void EpollPoller::handle(PollSocket& socket, std::uint32_t mask, std::span<PollEvent> out,
                         std::size_t& count) {
  if ((mask & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0) socket.is_hung_up_ = true;
  if ((mask & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0) socket.is_readable_ = true;
  if ((mask & (EPOLLOUT | EPOLLHUP | EPOLLERR)) != 0) socket.is_writable_ = true;
  if (socket.out_.is_pending && socket.is_writable_) {
    const auto result =
        socket.out_.op == PollOp::kConnect ? finish_connect(socket) : try_send(socket);
    if (result) {
      socket.out_.is_pending = false;
      out[count++] = {&socket, socket.out_.op, *result};
    }
  }
  if (socket.in_.is_pending && socket.is_readable_) {
    if (const auto result = try_receive(socket)) {
      socket.in_.is_pending = false;
      out[count++] = {&socket, PollOp::kReceive, *result};
    }
  }
}

int EpollPoller::wait(std::span<epoll_event> events, std::chrono::nanoseconds timeout) const {
  using std::chrono::milliseconds;
  using std::chrono::steady_clock;
  const bool is_limited = timeout.count() >= 0;
  const auto until = is_limited && timeout.count() > 0 ? steady_clock::now() + timeout
                                                       : steady_clock::time_point{};
  for (;;) {
    const auto wait_ms = std::chrono::ceil<milliseconds>(timeout).count();
    const int timeout_ms =
        is_limited ? static_cast<int>(std::min<std::int64_t>(wait_ms, 1 << 30)) : -1;
    const int n =
        ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), timeout_ms);
    if (n >= 0 || errno != EINTR) return n;
    // Not only signals: the end of an io_uring that this thread used before interrupts it as well.
    if (!is_limited) continue;
    timeout = std::max(std::chrono::nanoseconds(0),
                       std::chrono::nanoseconds(until - steady_clock::now()));
  }
}

std::size_t EpollPoller::poll(std::span<PollEvent> out, std::chrono::nanoseconds timeout) {
  std::size_t count = 0;
  // Alone and first: a cancelled operation must not complete a second time by an edge.
  if (!cancelled_.empty()) {
    count = std::min(out.size(), cancelled_.size());
    for (std::size_t i = 0; i < count; ++i) {
      out[i] = cancelled_[i];
      PollSocket& socket = *out[i].socket;
      (out[i].op == PollOp::kReceive ? socket.in_.is_pending : socket.out_.is_pending) = false;
    }
    cancelled_.erase(cancelled_.begin(), cancelled_.begin() + static_cast<std::ptrdiff_t>(count));
    return count;
  }
  epoll_event events[kEventsPerWait];
  // Each socket can finish two operations.
  const std::size_t limit = std::min(kEventsPerWait, out.size() / 2);
  const int n = wait(std::span(events).first(limit), timeout);
  for (int i = 0; i < n; ++i) {
    // The wake descriptor is edge-triggered too, so its counter need not be read.
    if (events[i].data.ptr == nullptr) continue;
    handle(*static_cast<PollSocket*>(events[i].data.ptr), events[i].events, out, count);
  }
  return count;
}

Result<std::unique_ptr<Poller>> create_epoll_poller() {
  Fd epoll(::epoll_create1(EPOLL_CLOEXEC));
  if (!epoll)
    return Status(Code::kExhausted, std::string("epoll_create1: ") + std::strerror(errno));
  EventFd wake;
  epoll_event event{};
  event.events = EPOLLIN | EPOLLET;
  if (!wake || ::epoll_ctl(epoll.get(), EPOLL_CTL_ADD, wake.get(), &event) != 0)
    return Status(Code::kExhausted, std::string("eventfd for epoll: ") + std::strerror(errno));
  return std::unique_ptr<Poller>(std::make_unique<EpollPoller>(std::move(epoll), std::move(wake)));
}

}  // namespace headrace
