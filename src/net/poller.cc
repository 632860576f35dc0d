#include "net/poller.h"

#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>

#include "base/check.h"
#include "net/poller_internal.h"

namespace headrace {

PollSocket::~PollSocket() { HEADRACE_DCHECK(fd_ < 0); }

Result<std::unique_ptr<Poller>> create_best_poller() {
  auto uring = create_uring_poller();
  if (uring || uring.error().code() != Code::kUnsupported) return uring;
  return create_epoll_poller();
}

std::uint64_t progress_bytes(const PollSocket& socket) noexcept {
  tcp_info info{};
  socklen_t size_bytes = sizeof(info);
  if (::getsockopt(socket.fd(), IPPROTO_TCP, TCP_INFO, &info, &size_bytes) != 0) return 0;
  if (size_bytes < offsetof(tcp_info, tcpi_bytes_received) + sizeof(info.tcpi_bytes_received))
    return 0;
  return info.tcpi_bytes_received + info.tcpi_bytes_acked;
}

bool is_quiet(const PollSocket& socket) noexcept {
  char byte = 0;
  const ssize_t n = ::recv(socket.fd(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  return n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR);
}

namespace detail {

int open_stream_socket(int family, int extra_type_flags) noexcept {
  const int fd = ::socket(family, SOCK_STREAM | SOCK_CLOEXEC | extra_type_flags, 0);
  if (fd < 0) return -errno;
  if (family == AF_INET || family == AF_INET6) {
    const int one = 1;
    // Requests are whole messages: waiting for more only adds a delay. Failure costs latency, not
    // correctness.
    static_cast<void>(::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)));
  }
  return fd;
}

void drop_front(std::array<iovec, 2>& pieces, std::size_t sent_bytes) noexcept {
  for (iovec& piece : pieces) {
    const std::size_t taken_bytes = std::min(sent_bytes, piece.iov_len);
    piece.iov_base = static_cast<std::byte*>(piece.iov_base) + taken_bytes;
    piece.iov_len -= taken_bytes;
    sent_bytes -= taken_bytes;
  }
}

}  // namespace detail
}  // namespace headrace
