// The helper thread and the owner share a State and nothing else, and both keep it alive: whoever
// goes first leaves the other unharmed. notify() is called under the State's mutex, so after
// abandon() it is neither running nor will it run.
#include "net/resolver.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>

#include <cstring>
#include <system_error>
#include <thread>
#include <utility>

#include "base/mutex.h"
#include "net/net_errors.h"

namespace headrace {
namespace {

Result<std::vector<NetAddress>> resolve(const std::string& host, std::uint16_t port) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV;
  addrinfo* list = nullptr;
  const int error = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &list);
  if (error != 0) return status_from_resolver(error, host);
  std::vector<NetAddress> addresses;
  for (const addrinfo* entry = list; entry != nullptr; entry = entry->ai_next) {
    if (entry->ai_addrlen > sizeof(sockaddr_storage)) continue;
    NetAddress address;
    std::memcpy(&address.storage, entry->ai_addr, entry->ai_addrlen);
    address.size_bytes = entry->ai_addrlen;
    addresses.push_back(address);
  }
  ::freeaddrinfo(list);
  if (addresses.empty()) return status_from_resolver(EAI_NONAME, host);
  return addresses;
}

Result<std::vector<NetAddress>> resolve_by(const HostResolver& resolver, const std::string& host,
                                           std::uint16_t port) {
  HEADRACE_TRY_ASSIGN(const auto texts, resolver(host));
  std::vector<NetAddress> addresses;
  for (const std::string& text : texts) {
    const auto address = parse_numeric_address(text, port);
    if (!address) {
      return Status(Code::kInvalidArgument,
                    "resolver: \"" + text + "\" for " + host + " is not a numeric address");
    }
    addresses.push_back(*address);
  }
  if (addresses.empty()) return Status(Code::kNotFound, "resolver: no address for " + host);
  return addresses;
}

}  // namespace

std::optional<NetAddress> parse_numeric_address(const std::string& host, std::uint16_t port) {
  NetAddress address;
  auto* v4 = reinterpret_cast<sockaddr_in*>(&address.storage);
  if (::inet_pton(AF_INET, host.c_str(), &v4->sin_addr) == 1) {
    v4->sin_family = AF_INET;
    v4->sin_port = htons(port);
    address.size_bytes = sizeof(sockaddr_in);
    return address;
  }
  const bool has_brackets = host.size() > 2 && host.front() == '[' && host.back() == ']';
  const std::string bare = has_brackets ? host.substr(1, host.size() - 2) : host;
  auto* v6 = reinterpret_cast<sockaddr_in6*>(&address.storage);
  if (::inet_pton(AF_INET6, bare.c_str(), &v6->sin6_addr) != 1) return std::nullopt;
  v6->sin6_family = AF_INET6;
  v6->sin6_port = htons(port);
  address.size_bytes = sizeof(sockaddr_in6);
  return address;
}

std::string to_text(const NetAddress& address) {
  char text[INET6_ADDRSTRLEN] = "";
  if (address.family() == AF_INET) {
    const auto* v4 = reinterpret_cast<const sockaddr_in*>(&address.storage);
    ::inet_ntop(AF_INET, &v4->sin_addr, text, sizeof(text));
    return std::string(text) + ":" + std::to_string(ntohs(v4->sin_port));
  }
  const auto* v6 = reinterpret_cast<const sockaddr_in6*>(&address.storage);
  ::inet_ntop(AF_INET6, &v6->sin6_addr, text, sizeof(text));
  return std::string("[").append(text).append("]:").append(std::to_string(ntohs(v6->sin6_port)));
}

struct NameLookup::State {
  Mutex mutex;
  std::function<void()> notify HEADRACE_GUARDED_BY(mutex);
  std::optional<Result<std::vector<NetAddress>>> result HEADRACE_GUARDED_BY(mutex);
};

Status NameLookup::start(std::string host, std::uint16_t port, std::function<void()> notify,
                         HostResolver resolver) {
  auto state = std::make_shared<State>();
  {
    MutexLock lock(state->mutex);
    state->notify = std::move(notify);
  }
  try {
    // Detached: getaddrinfo() cannot be interrupted and may take its resolver's whole timeout;
    // nobody should wait for it.
    std::thread([state, host = std::move(host), port, resolver = std::move(resolver)] {
      auto result = resolver ? resolve_by(resolver, host, port) : resolve(host, port);
      MutexLock lock(state->mutex);
      state->result.emplace(std::move(result));
      if (state->notify) state->notify();
    }).detach();
  } catch (const std::system_error& error) {
    return Status(Code::kExhausted,
                  std::string("cannot start a thread to resolve a host name: ") + error.what());
  }
  state_ = std::move(state);
  return {};
}

std::optional<Result<std::vector<NetAddress>>> NameLookup::take() {
  if (!state_) return std::nullopt;
  const std::shared_ptr<State> state = state_;
  MutexLock lock(state->mutex);
  if (!state->result) return std::nullopt;
  state_.reset();
  return std::move(state->result);
}

void NameLookup::abandon() noexcept {
  if (!state_) return;
  {
    MutexLock lock(state_->mutex);
    state_->notify = nullptr;  // after this the helper thread touches nothing of ours
  }
  state_.reset();
}

}  // namespace headrace
