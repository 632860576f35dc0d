#pragma once
/// \file
/// For tests: an address of this machine at which nobody answers, as of a dead host.
#include <sys/socket.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "base/fd.h"
#include "net/resolver.h"

namespace headrace {

/// 127.0.0.2 at a port. It listens and never accepts: once its queue is full, nobody gets an
/// answer.
class DeadAddress {
 public:
  explicit DeadAddress(std::uint16_t port)
      : listener_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const auto address = parse_numeric_address("127.0.0.2", port);
    is_there_ = ::bind(listener_.get(), address->get(), address->size_bytes) == 0 &&
                ::listen(listener_.get(), 0) == 0;
    for (int i = 0; is_there_ && i < 3; ++i) {
      queue_.emplace_back(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
      static_cast<void>(::connect(queue_.back().get(), address->get(), address->size_bytes));
    }
  }
  /// False where the machine has no such address.
  bool is_there() const noexcept { return is_there_; }

 private:
  const Fd listener_;
  bool is_there_ = false;
  std::vector<Fd> queue_;
};

}  // namespace headrace
