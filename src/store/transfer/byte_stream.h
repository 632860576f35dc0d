#pragma once
/// \file
/// ByteStream: a byte stream to a server, with or without a proxy's tunnel and TLS between it and
/// the PollSocket. Same proactor contract as Poller: an operation returns its result at once, or
/// promises one event.
///
/// Threads: its reactor's.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "net/poller.h"
#include "net/resolver.h"
#include "net/tls.h"

namespace headrace::transfer {

/// Received ciphertext of one connection: four of the largest records. More would leave the second
/// level cache with tens of connections, less costs system calls.
constexpr std::size_t kCipherBytes = 4 * kMaxTlsRecordBytes;
/// Sealed at a time while sending.
constexpr std::size_t kSealBytes = 64 << 10;
constexpr std::size_t kMaxTunnelAnswerBytes = 8 << 10;

/// What has to happen between connect() and the first request. Outlives the stream's use of it.
struct StreamPlan {
  std::string tunnel_head;          ///< CONNECT request to send first; empty: none.
  std::string tunnel_proxy;         ///< For messages: "proxy host:port".
  std::shared_ptr<TlsContext> tls;  ///< nullptr: plain.
  std::string host;                 ///< Name that the server's certificate must have.
  TlsResumption* resumption = nullptr;
};

class ByteStream {
 public:
  /// `owner`: what PollSocket::owner is for its events.
  ByteStream(Poller& poller, void* owner) : poller_(poller), socket_(owner) {}

  int open(int family) { return poller_.open(socket_, family); }
  /// Connects, and sets up tunnel and TLS: result 0, or -errno. Then failure() may say more.
  std::optional<std::int64_t> connect(const NetAddress& address, const StreamPlan& plan);
  std::optional<std::int64_t> receive(std::span<std::byte> buffer, ReceiveMode mode);
  std::optional<std::int64_t> send(std::span<const std::byte> head,
                                   std::span<const std::byte> body);
  /// What an event of the socket means for the operations above; nullopt: nothing yet.
  std::optional<PollEvent> on_event(const PollEvent& event);
  void cancel() { poller_.cancel(socket_); }
  /// \pre !socket().is_busy()
  void close();

  const PollSocket& socket() const noexcept { return socket_; }
  bool is_open() const noexcept { return socket_.is_open(); }
  /// What went wrong where errno does not tell; ok: nothing, use errno.
  const Status& failure() const noexcept { return failure_; }
  /// "connect", "tunnel", "TLS handshake": what connect() waits for.
  std::string_view phase_text() const noexcept;
  /// Bytes that came without having been asked for.
  bool has_surplus() const noexcept;
  /// Some of what was given to send() has not been given to the kernel yet.
  bool has_unsent() const noexcept;
  const TlsSession* tls() const noexcept { return session_.get(); }

 private:
  enum class Phase : std::uint8_t { kClosed, kConnecting, kTunnel, kHandshake, kOpen };

  std::int64_t fail(Status status);
  std::int64_t begin_tls();
  std::optional<std::int64_t> set_up();
  std::optional<std::int64_t> end_set_up(std::int64_t result);
  std::optional<std::int64_t> read_tunnel_answer();
  std::optional<std::int64_t> pump_receive(ReceiveMode mode);
  std::optional<std::int64_t> pump_send();
  std::optional<std::int64_t> fill(ReceiveMode mode);
  void take_received(std::int64_t bytes) { end_ += static_cast<std::size_t>(bytes); }
  std::span<const std::byte> unread() const noexcept {
    return {cipher_.get() + begin_, end_ - begin_};
  }

  Poller& poller_;
  PollSocket socket_;
  Phase phase_ = Phase::kClosed;
  const StreamPlan* plan_ = nullptr;
  std::unique_ptr<TlsSession> session_;
  Status failure_;
  std::int64_t set_up_error_ = 0;  // known, and the kernel still has a buffer

  std::unique_ptr<std::byte[]> cipher_;  // received, [begin_, end_) not yet opened
  std::size_t begin_ = 0;
  std::size_t end_ = 0;

  std::span<std::byte> target_;  // of the caller's receive() through TLS
  std::size_t target_done_ = 0;
  ReceiveMode mode_ = ReceiveMode::kSome;

  bool is_sending_ = false;  // the caller is, through TLS
  std::span<const std::byte> send_head_;
  std::span<const std::byte> send_body_;
  std::size_t send_bytes_ = 0;
  std::vector<std::byte> on_wire_;  // the kernel has it
};

}  // namespace headrace::transfer
