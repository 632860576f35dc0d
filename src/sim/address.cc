#include "sim/address.h"

#include <netdb.h>
#include <netinet/in.h>

#include <cerrno>
#include <cstring>

namespace headrace::sim {
namespace {

constexpr int kBacklog = 1024;
// A queue of length 0 takes one connection; the kernel drops further SYNs while it is full.
constexpr int kJamConnections = 4;

struct AddressList {
  addrinfo* first = nullptr;
  ~AddressList() {
    if (first != nullptr) ::freeaddrinfo(first);
  }
};

Status unavailable(const std::string& host, std::uint16_t port, const std::string& reason) {
  return Status(Code::kUnavailable,
                "simulator: cannot listen on " + host + ":" + std::to_string(port) + ": " + reason);
}

}  // namespace

Result<Address> Address::listen(const std::string& host, std::uint16_t port) {
  Address out;
  out.host_ = host;
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  AddressList found;
  const int error = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found.first);
  if (error != 0) return unavailable(host, port, ::gai_strerror(error));
  std::memcpy(&out.address_, found.first->ai_addr, found.first->ai_addrlen);
  out.address_length_ = found.first->ai_addrlen;
  HEADRACE_TRY(out.open_listener(kBacklog));
  // The port that the system picked is the one to open again.
  ::getsockname(out.listener_.get(), reinterpret_cast<sockaddr*>(&out.address_),
                &out.address_length_);
  return out;
}

Status Address::open_listener(int backlog) {
  Fd fd(::socket(address_.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const int on = 1;
  if (!fd || ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0 ||
      ::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address_), address_length_) != 0 ||
      ::listen(fd.get(), backlog) != 0) {
    return unavailable(host_, port(), std::strerror(errno));
  }
  listener_ = std::move(fd);
  return {};
}

Status Address::jam() {
  HEADRACE_TRY(open_listener(0));
  is_jammed_ = true;
  for (int i = 0; i < kJamConnections; ++i) {
    Fd fd(::socket(address_.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    (void)!::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address_), address_length_);
    jam_.push_back(std::move(fd));
  }
  return {};
}

Status Address::set_state(SimAddress::State state) {
  const bool is_listening = listener_ && !is_jammed_;
  const bool shall_listen = state == SimAddress::State::kUp || state == SimAddress::State::kMute;
  if (is_listening && shall_listen) return {};
  listener_ = Fd();
  jam_.clear();
  is_jammed_ = false;
  if (shall_listen) return open_listener(kBacklog);
  return state == SimAddress::State::kBlackhole ? jam() : Status();
}

std::uint16_t Address::port() const noexcept {
  if (address_.ss_family == AF_INET6) {
    sockaddr_in6 v6;
    std::memcpy(&v6, &address_, sizeof v6);
    return ntohs(v6.sin6_port);
  }
  sockaddr_in v4;
  std::memcpy(&v4, &address_, sizeof v4);
  return ntohs(v4.sin_port);
}

}  // namespace headrace::sim
