#pragma once
/// \file
/// Endpoint: one place that a reactor connects to, and what it knows about it: addresses, route,
/// TLS sessions, ops that wait for a name look-up. EndpointSet: the store's own endpoint and those
/// that redirects lead to.
///
/// Threads: their reactor's; the look-up's helper thread reaches it by letter.
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "headrace/clock.h"
#include "net/mailbox.h"
#include "net/resolver.h"
#include "store/http_protocol.h"
#include "store/net_settings.h"
#include "store/transfer/address_book.h"
#include "store/transfer/byte_stream.h"
#include "store/transfer/transfer_op.h"

namespace headrace::transfer {

/// Beyond it the least used endpoint without work is forgotten. AIStore clusters have tens of
/// nodes; more than this would not fit a default max_in_flight of connections either.
constexpr std::size_t kMaxEndpoints = 64;

struct Endpoint;

/// Sent by the look-up's helper thread.
struct ResolvedLetter : Letter {
  explicit ResolvedLetter(Endpoint& endpoint_in)
      : Letter(static_cast<std::uint8_t>(LetterKind::kResolved)), endpoint(endpoint_in) {}
  Endpoint& endpoint;
};

/// Proxies and TLS of one engine. Threads: any.
class Network {
 public:
  explicit Network(NetSettings settings) : settings_(std::move(settings)) {}
  const http::ProxyRules& proxies() const noexcept { return settings_.proxies; }
  /// Made when first asked for. Errors: those of TlsContext::create().
  Result<std::shared_ptr<TlsContext>> tls() HEADRACE_EXCLUDES(mutex_);

 private:
  const NetSettings settings_;
  Mutex mutex_;
  std::shared_ptr<TlsContext> tls_ HEADRACE_GUARDED_BY(mutex_);
};

struct Endpoint {
  explicit Endpoint(HttpEndpoint target_in);
  /// Settles route and TLS. Errors: those of Network::tls().
  Status prepare(Network& network);

  const HttpEndpoint target;
  /// Whose name is looked up and whose addresses are connected to: the target, or its proxy.
  std::string connect_host;
  std::uint16_t connect_port = 0;

  StreamPlan plan;
  TlsResumption resumption;
  /// For targets without TLS behind a proxy: requests go to it with an absolute URL that starts
  /// with this, and with this header line. Empty: no such proxy.
  std::string forward_prefix;
  std::string forward_field;

  AddressBook addresses;
  NameLookup lookup;
  ResolvedLetter letter{*this};
  OpQueue waiting;        ///< Ops in OpState::kPending that wait for the first addresses.
  std::size_t users = 0;  ///< Ops and open connections that point here.
  TimePoint used_at{};
};

class EndpointSet {
 public:
  /// `home` is never forgotten. `network` outlives the set.
  EndpointSet(const HttpEndpoint& home, Network& network);

  Endpoint& home() noexcept { return *endpoints_.front(); }
  /// The endpoint of `target`, a new one where needed. Errors: kExhausted (too many with work),
  /// those of Endpoint::prepare().
  Result<Endpoint*> find_or_add(const HttpEndpoint& target, TimePoint now);
  /// Ends all look-ups: no letter comes after it.
  void abandon_lookups() noexcept;
  std::size_t size() const noexcept { return endpoints_.size(); }

 private:
  Network& network_;
  std::vector<std::unique_ptr<Endpoint>> endpoints_;
};

}  // namespace headrace::transfer
