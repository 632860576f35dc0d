// A small HTTP client for token services that blocks, but never for longer than it was told and
// never past a stop: every wait is a poll() on the socket and on a bell that the stop token rings.
// Sockets are non-blocking for that reason.
//
// - Why not the transfer engine: it needs credentials, and this fetches them.
// - Two limits of time: connect_until_ for name, connect and TLS, until_ for the whole exchange.
// - One exchange a connection ("Connection: close"): these services are asked once in many
//   minutes.
// - Redirects are not followed: a token must not go where an answer points.
// - The end of a body without a length is the end of the connection; under TLS that counts only
//   with close_notify, else anyone on the way could cut an answer short.
// - Nothing of an answer is believed beyond 1 MiB.
#include "auth/web_client.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "base/event_fd.h"
#include "base/fd.h"
#include "base/mutex.h"
#include "base/strings.h"
#include "headrace/clock.h"
#include "http/fields.h"
#include "http/proxy.h"
#include "http/response.h"
#include "http/uri.h"
#include "net/net_errors.h"
#include "net/resolver.h"
#include "net/tls.h"

namespace headrace::auth {
namespace {

constexpr std::size_t kMaxBodyBytes = 1 << 20;
// How long a connect may take when there is another address (RFC 8305, section 8).
constexpr std::chrono::milliseconds kNextAddressAfter{250};
constexpr std::size_t kPieceBytes = 16 << 10;

std::span<const std::byte> as_bytes(std::string_view text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

/// Metadata and token services of this machine: a proxy would ask its own machine's, and see the
/// secrets that they take.
bool is_of_this_machine(std::string_view host) {
  constexpr std::array kEntries = {
      "localhost",     "127.0.0.0/8",  "::1",       "169.254.0.0/16",
      "fd00:ec2::254", "fd00:ec2::23", "fe80::/10", "metadata.google.internal"};
  return std::any_of(kEntries.begin(), kEntries.end(),
                     [&](const char* entry) { return http::names_host(entry, host, 0); });
}

struct Target {
  http::HttpUrl url;
  std::string path;  ///< And query, starts with '/'.
};

Result<Target> parse_target(const std::string& text) {
  const std::size_t scheme_end = text.find("://");
  const std::size_t from = scheme_end == std::string::npos ? 0 : scheme_end + 3;
  const std::size_t end = std::min(text.find_first_of("/?#", from), text.size());
  Target target;
  HEADRACE_TRY_ASSIGN(target.url, http::parse_http_url(std::string_view(text).substr(0, end)));
  target.path = text.substr(end, text.find('#') - end);
  if (!target.path.starts_with('/')) target.path.insert(0, 1, '/');
  const bool has_control = std::any_of(target.path.begin(), target.path.end(),
                                       [](char c) { return static_cast<unsigned char>(c) <= ' '; });
  if (has_control) return Status(Code::kInvalidArgument, "spaces in the URL must be escaped");
  return target;
}

/// One exchange: a stream to the server and the limits of time.
class Exchange {
 public:
  Exchange(const WebRequest& request, const HostResolver& resolver, std::stop_token stop)
      : name_(request.method + " " + request.url.substr(0, request.url.find('?'))),
        start_(system_clock().now()),
        connect_until_(start_ + std::min(request.connect_timeout, request.timeout)),
        until_(start_ + request.timeout),
        resolver_(resolver),
        stop_(std::move(stop)),
        on_stop_(stop_, [this] { stop_bell_.signal(); }) {}

  Status connect(const std::string& host, std::uint16_t port);
  Status open_tunnel(const http::HttpUrl& target, const http::Proxy& proxy);
  Status open_tls(std::shared_ptr<TlsContext> context, const std::string& host);
  Status send(std::string_view text);
  /// Appends some bytes; 0: the end.
  Result<std::size_t> receive(std::string& out);
  Result<WebAnswer> read_answer(bool is_head);
  Status fail(Code code, std::string_view what) const {
    return Status(code, name_ + ": " + std::string(what));
  }

 private:
  Status wait(int fd, short events, TimePoint until) const;
  Result<std::vector<NetAddress>> look_up(const std::string& host, std::uint16_t port);
  Status connect_to(const NetAddress& address, TimePoint until);
  Status send_raw(std::span<const std::byte> bytes, TimePoint until);
  Result<std::size_t> receive_raw(std::span<std::byte> buffer, TimePoint until);
  Result<std::size_t> read_head(std::string& bytes, http::ResponseHead& head);

  const std::string name_;
  const TimePoint start_;
  const TimePoint connect_until_;
  const TimePoint until_;
  const HostResolver& resolver_;
  std::stop_token stop_;
  EventFd stop_bell_;
  // After the bell, which it may ring while it is being constructed.
  std::stop_callback<std::function<void()>> on_stop_;
  Fd fd_;
  std::unique_ptr<TlsSession> tls_;
  std::vector<std::byte> sealed_;  // received, not opened yet
};

Status Exchange::wait(int fd, short events, TimePoint until) const {
  for (;;) {
    if (stop_.stop_requested()) return fail(Code::kCancelled, "cancelled");
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(until - system_clock().now()).count();
    if (left <= 0) {
      const auto waited =
          std::chrono::duration_cast<std::chrono::milliseconds>(system_clock().now() - start_);
      return fail(Code::kUnavailable, "timed out after " + std::to_string(waited.count()) + " ms");
    }
    pollfd polled[2] = {{fd, events, 0}, {stop_bell_.get(), POLLIN, 0}};
    const int count = ::poll(polled, 2, static_cast<int>(std::min<std::int64_t>(left, 60'000)));
    if (count < 0 && errno != EINTR) return fail(Code::kUnavailable, "poll");
    if (count > 0 && polled[0].revents != 0) return {};
  }
}

Result<std::vector<NetAddress>> Exchange::look_up(const std::string& host, std::uint16_t port) {
  if (const auto address = parse_numeric_address(host, port)) return std::vector{*address};
  const EventFd bell;  // Rung by the helper thread of the look-up.
  NameLookup lookup;
  HEADRACE_TRY(lookup.start(
      host, port, [&bell] { bell.signal(); }, resolver_));
  for (;;) {
    if (auto result = lookup.take()) {
      if (!*result) return fail(Code::kUnavailable, result->error().message());
      return **std::move(result);
    }
    HEADRACE_TRY(wait(bell.get(), POLLIN, connect_until_));
  }
}

Status Exchange::connect_to(const NetAddress& address, TimePoint until) {
  fd_ = Fd(::socket(address.family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (fd_.get() < 0) return status_from_errno(errno, name_);
  const std::string doing = name_ + ": connect to " + to_text(address);
  if (::connect(fd_.get(), address.get(), address.size_bytes) == 0) return {};
  if (errno != EINPROGRESS) return status_from_errno(errno, doing);
  HEADRACE_TRY(wait(fd_.get(), POLLOUT, until));
  int error = 0;
  socklen_t size_bytes = sizeof(error);
  if (::getsockopt(fd_.get(), SOL_SOCKET, SO_ERROR, &error, &size_bytes) != 0) error = errno;
  return error == 0 ? Status() : status_from_errno(error, doing);
}

Status Exchange::connect(const std::string& host, std::uint16_t port) {
  HEADRACE_TRY_ASSIGN(const auto addresses, look_up(host, port));
  Status status;
  // One after the other, not raced: the last address gets all the time that is left, the others
  // little.
  for (const NetAddress& address : addresses) {
    const bool is_last = &address == &addresses.back();
    const TimePoint until = system_clock().now() + kNextAddressAfter;
    status = connect_to(address, is_last ? connect_until_ : std::min(connect_until_, until));
    if (status.ok() || status.code() == Code::kCancelled) break;
  }
  if (status.code() != Code::kOk && status.code() != Code::kCancelled)
    return Status(Code::kUnavailable, std::string(status.message()));
  return status;
}

Status Exchange::send_raw(std::span<const std::byte> bytes, TimePoint until) {
  while (!bytes.empty()) {
    const ssize_t n = ::send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (n >= 0) {
      bytes = bytes.subspan(static_cast<std::size_t>(n));
    } else if (errno == EAGAIN) {
      HEADRACE_TRY(wait(fd_.get(), POLLOUT, until));
    } else if (errno != EINTR) {
      return fail(Code::kUnavailable, status_from_errno(errno).message());
    }
  }
  return {};
}

Result<std::size_t> Exchange::receive_raw(std::span<std::byte> buffer, TimePoint until) {
  for (;;) {
    const ssize_t n = ::recv(fd_.get(), buffer.data(), buffer.size(), 0);
    if (n >= 0) return static_cast<std::size_t>(n);
    if (errno == EAGAIN) {
      HEADRACE_TRY(wait(fd_.get(), POLLIN, until));
    } else if (errno != EINTR) {
      return fail(Code::kUnavailable, status_from_errno(errno).message());
    }
  }
}

Status Exchange::open_tunnel(const http::HttpUrl& target, const http::Proxy& proxy) {
  const bool is_v6 = target.host.find(':') != std::string::npos;
  const std::string authority =
      (is_v6 ? "[" + target.host + "]" : target.host) + ":" + std::to_string(target.port);
  std::string text = "CONNECT " + authority + " HTTP/1.1\r\nHost: " + authority + "\r\n";
  if (!proxy.authorization.empty()) text += "Proxy-Authorization: " + proxy.authorization + "\r\n";
  HEADRACE_TRY(send(text + "\r\n"));
  std::string bytes;
  http::ResponseHead head;
  HEADRACE_TRY_ASSIGN(const std::size_t head_bytes, read_head(bytes, head));
  if (head.status < 200 || head.status >= 300)
    return fail(Code::kUnavailable, "the proxy " + proxy.host + " refuses the connection: HTTP " +
                                        std::to_string(head.status));
  // What came behind the proxy's answer belongs to the TLS handshake.
  const auto rest = as_bytes(std::string_view(bytes).substr(head_bytes));
  sealed_.assign(rest.begin(), rest.end());
  return {};
}

Status Exchange::open_tls(std::shared_ptr<TlsContext> context, const std::string& host) {
  auto session = TlsSession::create(std::move(context), host, nullptr);
  if (!session) return fail(session.error().code(), session.error().message());
  tls_ = *std::move(session);
  for (;;) {
    auto taken = tls_->handshake(sealed_);
    HEADRACE_TRY(send_raw(tls_->output(), connect_until_));
    tls_->output().clear();
    if (!taken) return fail(Code::kUnavailable, taken.error().message());
    sealed_.erase(sealed_.begin(), sealed_.begin() + static_cast<std::ptrdiff_t>(*taken));
    if (tls_->is_established()) return {};
    std::array<std::byte, kPieceBytes> piece;
    HEADRACE_TRY_ASSIGN(const std::size_t got, receive_raw(piece, connect_until_));
    if (got == 0) return fail(Code::kUnavailable, "connection closed in the TLS handshake");
    sealed_.insert(sealed_.end(), piece.begin(), piece.begin() + static_cast<std::ptrdiff_t>(got));
  }
}

Status Exchange::send(std::string_view text) {
  if (!tls_) return send_raw(as_bytes(text), until_);
  HEADRACE_TRY(tls_->encrypt(as_bytes(text)));
  HEADRACE_TRY(send_raw(tls_->output(), until_));
  tls_->output().clear();
  return {};
}

Result<std::size_t> Exchange::receive(std::string& out) {
  std::array<std::byte, kPieceBytes> piece;
  std::size_t got = 0;
  if (!tls_) {
    HEADRACE_TRY_ASSIGN(got, receive_raw(piece, until_));
  }
  while (tls_ != nullptr) {
    auto opened = tls_->decrypt(sealed_, piece);
    if (!opened) return fail(Code::kUnavailable, opened.error().message());
    sealed_.erase(sealed_.begin(),
                  sealed_.begin() + static_cast<std::ptrdiff_t>(opened->consumed_bytes));
    got = opened->produced_bytes;
    if (got > 0 || opened->is_end) break;
    std::array<std::byte, kPieceBytes> more;
    HEADRACE_TRY_ASSIGN(const std::size_t more_bytes, receive_raw(more, until_));
    if (more_bytes == 0)
      return fail(Code::kUnavailable, "connection closed by peer without TLS close_notify");
    sealed_.insert(sealed_.end(), more.begin(),
                   more.begin() + static_cast<std::ptrdiff_t>(more_bytes));
  }
  out.append(reinterpret_cast<const char*>(piece.data()), got);
  return got;
}

Result<std::size_t> Exchange::read_head(std::string& bytes, http::ResponseHead& head) {
  for (;;) {
    auto parsed = http::parse_response_head(bytes, head);
    if (!parsed) return fail(Code::kCorrupt, parsed.error().message());
    const std::size_t head_bytes = *parsed;
    if (head_bytes > 0 && head.status >= 200) return head_bytes;
    // 1xx: the answer itself follows.
    if (head_bytes > 0) {
      bytes.erase(0, head_bytes);
      continue;
    }
    HEADRACE_TRY_ASSIGN(const std::size_t got, receive(bytes));
    if (got == 0) return fail(Code::kUnavailable, "connection closed before the answer");
  }
}

Result<WebAnswer> Exchange::read_answer(bool is_head) {
  std::string bytes;
  http::ResponseHead head;
  HEADRACE_TRY_ASSIGN(const std::size_t head_bytes, read_head(bytes, head));
  WebAnswer answer;
  answer.status = head.status;
  http::LineReader reader(head.fields, 0);
  http::Field field;
  while (reader.next_field(field) == http::LineReader::Kind::kLine) {
    std::string name(field.name);
    for (char& c : name) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    answer.headers.emplace_back(std::move(name), std::string(field.value));
  }
  const auto length = http::body_length(head, is_head);
  const bool is_chunked = !length && head.is_chunked;
  bytes.erase(0, head_bytes);
  http::ChunkedDecoder chunked;
  for (;;) {
    if (is_chunked) {
      const auto used = chunked.feed(bytes, answer.body, kMaxBodyBytes);
      if (!used) return fail(Code::kCorrupt, used.error().message());
      bytes.clear();
      if (chunked.done()) return answer;
    } else {
      answer.body.append(bytes);
      bytes.clear();
      if (answer.body.size() > kMaxBodyBytes) return fail(Code::kCorrupt, "answer above 1 MiB");
      if (length && answer.body.size() >= *length) {
        answer.body.resize(static_cast<std::size_t>(*length));
        return answer;
      }
    }
    HEADRACE_TRY_ASSIGN(const std::size_t got, receive(bytes));
    if (got > 0) continue;
    if (!length && !is_chunked) return answer;
    return fail(Code::kUnavailable, "connection closed inside the answer");
  }
}

class SocketWebClient final : public WebClient {
 public:
  SocketWebClient(Result<http::ProxyRules> proxies, TlsOptions tls, HostResolver resolver)
      : tls_options_(std::move(tls)), resolver_(std::move(resolver)) {
    if (proxies) {
      proxies_ = *std::move(proxies);
    } else {
      proxy_failure_ = std::move(proxies).error();
    }
  }
  Result<WebAnswer> fetch(const WebRequest& request, std::stop_token stop) override;

 private:
  Result<std::shared_ptr<TlsContext>> tls() HEADRACE_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    if (!tls_) {
      HEADRACE_TRY_ASSIGN(tls_, TlsContext::create(tls_options_));
    }
    return tls_;
  }

  http::ProxyRules proxies_;
  Status proxy_failure_;
  const TlsOptions tls_options_;
  const HostResolver resolver_;
  Mutex mutex_;
  std::shared_ptr<TlsContext> tls_ HEADRACE_GUARDED_BY(mutex_);
};

/// Request line to blank line, and body.
std::string request_text(const WebRequest& request, const Target& target,
                         const http::Proxy* forward) {
  std::string text = request.method + " ";
  if (forward != nullptr) text += "http://" + target.url.authority();
  text += target.path + " HTTP/1.1\r\nHost: " + target.url.authority() + "\r\n";
  if (forward != nullptr && !forward->authorization.empty())
    text += "Proxy-Authorization: " + forward->authorization + "\r\n";
  for (const auto& [name, value] : request.headers) text += name + ": " + value + "\r\n";
  if (!request.body.empty() || request.method == "POST" || request.method == "PUT")
    text += "Content-Length: " + std::to_string(request.body.size()) + "\r\n";
  return text + "Connection: close\r\n\r\n" + request.body;
}

Result<WebAnswer> SocketWebClient::fetch(const WebRequest& request, std::stop_token stop) {
  HEADRACE_TRY_ASSIGN(const Target target, parse_target(request.url));
  Exchange exchange(request, resolver_, std::move(stop));
  const http::Proxy* proxy = nullptr;
  if (!request.is_local && !is_of_this_machine(target.url.host)) {
    if (!proxy_failure_.ok()) return exchange.fail(proxy_failure_.code(), proxy_failure_.message());
    proxy = proxies_.find(target.url.host, target.url.port, target.url.use_tls);
  }
  HEADRACE_TRY(exchange.connect(proxy != nullptr ? proxy->host : target.url.host,
                                proxy != nullptr ? proxy->port : target.url.port));
  if (target.url.use_tls) {
    if (proxy != nullptr) HEADRACE_TRY(exchange.open_tunnel(target.url, *proxy));
    auto context = tls();
    if (!context) return exchange.fail(Code::kUnavailable, context.error().message());
    HEADRACE_TRY(exchange.open_tls(*context, target.url.host));
    proxy = nullptr;
  }
  HEADRACE_TRY(exchange.send(request_text(request, target, proxy)));
  return exchange.read_answer(request.method == "HEAD");
}

}  // namespace

std::shared_ptr<WebClient> create_web_client(const Environment& environment,
                                             const WebClientOptions& options) {
  TlsOptions tls;
  if (!options.ca_bundle.empty()) {
    tls.authorities.push_back(options.ca_bundle);
  } else {
    for (const char* name : {"SSL_CERT_FILE", "SSL_CERT_DIR"}) {
      if (std::string path = environment.get(name); !path.empty())
        tls.authorities.push_back(std::move(path));
    }
  }
  return std::make_shared<SocketWebClient>(http::resolve_proxy_rules(options.proxy, environment),
                                           std::move(tls), options.resolver);
}

}  // namespace headrace::auth
