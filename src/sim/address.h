#pragma once
/// \file
/// One address that the server listens on, and its ways of being unreachable. Not thread-safe.
#include <sys/socket.h>

#include <string>
#include <vector>

#include "base/fd.h"
#include "headrace/sim.h"
#include "headrace/status.h"

namespace headrace::sim {

class Address {
 public:
  /// Errors: kUnavailable, with address and reason.
  static Result<Address> listen(const std::string& host, std::uint16_t port);

  /// Opens, closes or jams the socket. Errors: kUnavailable.
  Status set_state(SimAddress::State state);
  /// To accept from; -1: nothing comes.
  int listener() const noexcept { return is_jammed_ ? -1 : listener_.get(); }
  std::uint16_t port() const noexcept;
  const std::string& host() const noexcept { return host_; }

 private:
  Status open_listener(int backlog);
  Status jam();

  std::string host_;
  sockaddr_storage address_{};
  socklen_t address_length_ = 0;
  Fd listener_;
  std::vector<Fd> jam_;
  bool is_jammed_ = false;
};

}  // namespace headrace::sim
