#include "sim/wire.h"

#include <openssl/err.h>
#include <sys/sendfile.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

namespace headrace::sim {

Wire::Wire(Fd fd, SSL_CTX* context) : fd_(std::move(fd)) {
  if (context == nullptr) return;
  ssl_.reset(SSL_new(context));
  if (ssl_ == nullptr || SSL_set_fd(ssl_.get(), fd_.get()) != 1) return;
  SSL_set_accept_state(ssl_.get());
}

ssize_t Wire::result_of(int returned) noexcept {
  if (returned > 0) return returned;
  const int error = SSL_get_error(ssl_.get(), returned);
  ERR_clear_error();
  if (error == SSL_ERROR_ZERO_RETURN) return 0;
  errno = error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE ? EAGAIN : EPROTO;
  return -1;
}

ssize_t Wire::receive(std::span<char> target) noexcept {
  if (!is_tls()) return ::recv(fd_.get(), target.data(), target.size(), 0);
  return result_of(SSL_read(ssl_.get(), target.data(), static_cast<int>(target.size())));
}

ssize_t Wire::send(std::string_view bytes, bool more_follows) noexcept {
  if (!is_tls()) {
    return ::send(fd_.get(), bytes.data(), bytes.size(),
                  MSG_NOSIGNAL | (more_follows ? MSG_MORE : 0));
  }
  return result_of(SSL_write(ssl_.get(), bytes.data(), static_cast<int>(bytes.size())));
}

ssize_t Wire::send_file(int file, std::uint64_t offset_bytes, std::uint64_t count,
                        std::span<char> scratch) noexcept {
  auto offset = static_cast<off_t>(offset_bytes);
  if (!is_tls()) {
    return ::sendfile(fd_.get(), file, &offset, static_cast<std::size_t>(count));
  }
  const auto size = static_cast<std::size_t>(std::min<std::uint64_t>(count, scratch.size()));
  const ssize_t read = ::pread(file, scratch.data(), size, offset);
  if (read <= 0) return read;
  return result_of(SSL_write(ssl_.get(), scratch.data(), static_cast<int>(read)));
}

void Wire::finish() noexcept {
  if (is_tls()) (void)SSL_shutdown(ssl_.get());
  ERR_clear_error();
  ::shutdown(fd_.get(), SHUT_WR);
}

void Wire::reset_on_close() noexcept {
  const struct linger reset { 1, 0 };
  ::setsockopt(fd_.get(), SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
}

}  // namespace headrace::sim
