#pragma once
/// \file
/// Host names to addresses without blocking a reactor: getaddrinfo() runs on a helper thread of its
/// own.
///
/// Threads: one owner; `notify` is called on the helper thread.
#include <sys/socket.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "headrace/status.h"

namespace headrace {

struct NetAddress {
  sockaddr_storage storage{};
  socklen_t size_bytes = 0;
  int family() const noexcept { return storage.ss_family; }
  const sockaddr* get() const noexcept { return reinterpret_cast<const sockaddr*>(&storage); }
};

/// "127.0.0.1", "::1" or "[::1]" without asking anybody; nullopt for names.
std::optional<NetAddress> parse_numeric_address(const std::string& host, std::uint16_t port);

/// "127.0.0.1:80", "[::1]:80".
std::string to_text(const NetAddress& address);

/// Numeric addresses of a name; replaces getaddrinfo(). May block.
using HostResolver = std::function<Result<std::vector<std::string>>(const std::string& host)>;

/// One look-up at a time. Destroying it abandons the look-up at once, even while getaddrinfo()
/// hangs: the helper thread then ends on its own and calls nobody.
class NameLookup {
 public:
  NameLookup() = default;
  ~NameLookup() { abandon(); }
  NameLookup(const NameLookup&) = delete;
  NameLookup& operator=(const NameLookup&) = delete;

  bool is_running() const noexcept { return state_ != nullptr; }

  /// Starts; `notify` is called once, when take() has something. `resolver` answers instead of the
  /// system, if given. Errors: kExhausted (no thread). \pre !is_running()
  Status start(std::string host, std::uint16_t port, std::function<void()> notify,
               HostResolver resolver = {});

  /// The addresses in the system's order of preference (at least one), or why there are none
  /// (kNotFound: no such name; kUnavailable); nullopt while it runs. Whoever asks a store must not
  /// hand the kNotFound on: it would read as if an object were not there.
  std::optional<Result<std::vector<NetAddress>>> take();

  void abandon() noexcept;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace headrace
