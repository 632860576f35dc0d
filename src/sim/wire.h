#pragma once
/// \file
/// The bytes of one connection: a non-blocking socket, in the clear or with TLS. Owner thread only.
#include <openssl/ssl.h>
#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "base/fd.h"

namespace headrace::sim {

class Wire {
 public:
  /// `context`: of TLS; nullptr: plain.
  Wire(Fd fd, SSL_CTX* context);

  int fd() const noexcept { return fd_.get(); }
  bool is_tls() const noexcept { return ssl_ != nullptr; }
  /// As recv(), send() and sendfile(): bytes, 0 at the end, -1 with errno (EAGAIN: wait).
  ssize_t receive(std::span<char> target) noexcept;
  ssize_t send(std::string_view bytes, bool more_follows) noexcept;
  ssize_t send_file(int file, std::uint64_t offset_bytes, std::uint64_t count,
                    std::span<char> scratch) noexcept;
  /// Tells the client that nothing more comes.
  void finish() noexcept;
  /// The coming close() resets.
  void reset_on_close() noexcept;

 private:
  struct FreeSsl {
    void operator()(SSL* ssl) const noexcept { SSL_free(ssl); }
  };
  ssize_t result_of(int returned) noexcept;
  Fd fd_;
  std::unique_ptr<SSL, FreeSsl> ssl_;
};

}  // namespace headrace::sim
