// A stream over a socket, with a proxy's tunnel and TLS where planned. It looks like the socket
// below it: each call either has its result at once or hands an event up later, exactly one.
// Set-up (connect, tunnel, handshake) looks like one connect().
//
// - Without TLS nothing is done to data: the poller fills the caller's buffer.
// - With TLS cipher_ holds what came and was not opened, [begin_, end_); on_wire_ what the kernel
//   is sending, which may not change until it says so; session_->output() what comes next.
// - A failure of set-up is told when the kernel has given all buffers back: the owner may close
//   then.
// - A TCP end inside TLS is an error: a body without a length could have been cut short by
//   anybody.
#include "store/transfer/byte_stream.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "http/response.h"

namespace headrace::transfer {
namespace {

std::span<const std::byte> as_bytes(std::string_view text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

}  // namespace

std::int64_t ByteStream::fail(Status status) {
  failure_ = std::move(status);
  return -EPROTO;
}

std::string_view ByteStream::phase_text() const noexcept {
  switch (phase_) {
    case Phase::kTunnel:
      return "proxy tunnel through";
    case Phase::kHandshake:
      return "TLS handshake with";
    default:
      return "connect to";
  }
}

bool ByteStream::has_surplus() const noexcept {
  return session_ != nullptr && (begin_ != end_ || session_->surplus_bytes() > 0);
}

bool ByteStream::has_unsent() const noexcept {
  if (session_ == nullptr) return false;
  return !session_->output().empty() ||
         (is_sending_ && !(send_head_.empty() && send_body_.empty()));
}

void ByteStream::close() {
  poller_.close(socket_);
  session_.reset();
  phase_ = Phase::kClosed;
  is_sending_ = false;
  begin_ = end_ = 0;
  on_wire_.clear();
}

// --- set up ---

std::optional<std::int64_t> ByteStream::connect(const NetAddress& address, const StreamPlan& plan) {
  plan_ = &plan;
  phase_ = Phase::kConnecting;
  failure_ = Status();
  begin_ = end_ = 0;
  set_up_error_ = 0;
  auto result = poller_.connect(socket_, address.get(), address.size_bytes);
  if (result && *result >= 0) result = set_up();
  return result ? end_set_up(*result) : std::nullopt;
}

/// A failure is told when the kernel has no buffer any more: the owner may close then.
std::optional<std::int64_t> ByteStream::end_set_up(std::int64_t result) {
  if (result >= 0 || !socket_.is_busy()) return result;
  set_up_error_ = result;
  poller_.cancel(socket_);
  return std::nullopt;
}

std::int64_t ByteStream::begin_tls() {
  auto session = TlsSession::create(plan_->tls, plan_->host, plan_->resumption);
  if (!session) return fail(std::move(session).error());
  session_ = *std::move(session);
  phase_ = Phase::kHandshake;
  return 0;
}

/// After the TCP connection stands, and again whenever bytes came.
std::optional<std::int64_t> ByteStream::set_up() {
  if (phase_ == Phase::kConnecting) {
    const bool has_tunnel = !plan_->tunnel_head.empty();
    if (!has_tunnel && !plan_->tls) {
      phase_ = Phase::kOpen;
      return 0;
    }
    if (!cipher_) cipher_ = std::make_unique_for_overwrite<std::byte[]>(kCipherBytes);
    if (has_tunnel) {
      phase_ = Phase::kTunnel;
      const auto head = as_bytes(plan_->tunnel_head);
      on_wire_.assign(head.begin(), head.end());
      const auto sent = poller_.send(socket_, on_wire_, {});
      if (sent && *sent < 0) return sent;
    } else if (const std::int64_t error = begin_tls(); error < 0) {
      return error;
    }
  }
  for (;;) {
    if (phase_ == Phase::kTunnel) {
      if (const auto error = read_tunnel_answer()) return error;
    }
    if (phase_ == Phase::kHandshake) {
      const auto taken = session_->handshake(unread());
      const auto flushed = pump_send();  // an alert, too
      if (!taken) return fail(taken.error().clone());
      if (flushed && *flushed < 0) return flushed;
      begin_ += *taken;
      if (session_->is_established()) {
        phase_ = Phase::kOpen;
        return 0;
      }
    }
    const auto received = fill(ReceiveMode::kSome);
    if (!received) return std::nullopt;
    if (*received <= 0) return *received < 0 ? *received : -ECONNRESET;
    take_received(*received);
  }
}

/// nullopt: go on; otherwise why connect() fails.
std::optional<std::int64_t> ByteStream::read_tunnel_answer() {
  const auto bytes = unread();
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  http::ResponseHead head;
  const auto parsed = http::parse_response_head(text, head);
  if (!parsed)
    return fail(Status(Code::kUnavailable, plan_->tunnel_proxy + " does not answer in HTTP"));
  if (*parsed == 0) {
    if (bytes.size() < kMaxTunnelAnswerBytes) return std::nullopt;
    return fail(Status(Code::kUnavailable, plan_->tunnel_proxy + " answers with too long a head"));
  }
  if (head.status < 200) {
    begin_ += *parsed;
    return read_tunnel_answer();
  }
  if (head.status >= 300) {
    const bool is_denied = head.status == 407 || head.status == 403 || head.status == 401;
    const std::string why =
        head.status == 407 ? "; put the user name and password of the proxy into its URL" : "";
    return fail(Status(is_denied ? Code::kDenied : Code::kUnavailable,
                       plan_->tunnel_proxy + " refuses the connection to " + plan_->host +
                           ": HTTP " + std::to_string(head.status) + why));
  }
  begin_ += *parsed;
  const std::int64_t error = begin_tls();
  return error < 0 ? std::optional<std::int64_t>(error) : std::nullopt;
}

// --- receive ---

/// Receives behind what is there already. The result is the socket's.
std::optional<std::int64_t> ByteStream::fill(ReceiveMode mode) {
  if (begin_ > 0) {
    std::memmove(cipher_.get(), cipher_.get() + begin_, end_ - begin_);
    end_ -= begin_;
    begin_ = 0;
  }
  return poller_.receive(socket_, {cipher_.get() + end_, kCipherBytes - end_}, mode);
}

std::optional<std::int64_t> ByteStream::receive(std::span<std::byte> buffer, ReceiveMode mode) {
  if (!session_) return poller_.receive(socket_, buffer, mode);
  target_ = buffer;
  target_done_ = 0;
  mode_ = mode;
  return pump_receive(mode);
}

std::optional<std::int64_t> ByteStream::pump_receive(ReceiveMode mode) {
  for (;;) {
    auto opened = session_->decrypt(unread(), target_.subspan(target_done_));
    if (!opened) return fail(opened.error().clone());
    begin_ += opened->consumed_bytes;
    target_done_ += opened->produced_bytes;
    if (!session_->output().empty()) {  // an answer to a KeyUpdate
      const auto flushed = pump_send();
      if (flushed && *flushed < 0) return flushed;
    }
    const bool is_full = target_done_ == target_.size();
    if (is_full || opened->is_end || (mode_ != ReceiveMode::kAll && target_done_ > 0))
      return static_cast<std::int64_t>(target_done_);
    const auto received = fill(mode == ReceiveMode::kSomeLater ? mode : ReceiveMode::kSome);
    mode = ReceiveMode::kSome;
    if (!received) return std::nullopt;
    if (*received < 0) return received;
    if (*received == 0) {
      failure_ = Status(Code::kUnavailable, "connection closed by peer without TLS close_notify");
      return -ECONNRESET;
    }
    take_received(*received);
  }
}

// --- send ---

std::optional<std::int64_t> ByteStream::send(std::span<const std::byte> head,
                                             std::span<const std::byte> body) {
  if (!session_) return poller_.send(socket_, head, body);
  send_head_ = head;
  send_body_ = body;
  send_bytes_ = head.size() + body.size();
  is_sending_ = true;
  const auto result = pump_send();
  if (result) is_sending_ = false;
  return result;
}

/// Seals and sends until nothing is left: the caller's bytes, and what TLS has to say by itself.
/// The result is that of send().
std::optional<std::int64_t> ByteStream::pump_send() {
  while (!socket_.is_sending()) {
    std::vector<std::byte>& sealed = session_->output();
    if (sealed.empty() && is_sending_) {
      std::span<const std::byte>& plain = send_head_.empty() ? send_body_ : send_head_;
      if (plain.empty()) return static_cast<std::int64_t>(send_bytes_);
      const auto piece = plain.first(std::min(plain.size(), kSealBytes));
      if (Status done = session_->encrypt(piece); !done.ok()) return fail(std::move(done));
      plain = plain.subspan(piece.size());
    }
    if (sealed.empty()) return 0;
    on_wire_.clear();
    on_wire_.swap(sealed);
    const auto sent = poller_.send(socket_, on_wire_, {});
    if (sent && *sent < 0) return sent;
  }
  return std::nullopt;
}

// --- events ---

std::optional<PollEvent> ByteStream::on_event(const PollEvent& event) {
  if (phase_ != Phase::kOpen) {
    std::optional<std::int64_t> result = event.result;
    if (set_up_error_ != 0) {
      result = set_up_error_;
    } else if (event.op == PollOp::kReceive && event.result == 0) {
      result = -ECONNRESET;
    } else if (event.op == PollOp::kSend && event.result >= 0) {
      result = session_ ? pump_send() : std::nullopt;
      if (result && *result >= 0) return std::nullopt;
    } else if (event.result >= 0) {
      if (event.op == PollOp::kReceive) take_received(event.result);
      result = set_up();
    }
    if (result) result = end_set_up(*result);
    if (!result) return std::nullopt;
    return PollEvent{event.socket, PollOp::kConnect, *result};
  }
  if (!session_) return event;
  std::optional<std::int64_t> result = event.result;
  if (event.op == PollOp::kSend) {
    if (event.result >= 0) result = pump_send();
    if (!result || (!is_sending_ && *result >= 0)) return std::nullopt;
    is_sending_ = false;
    return PollEvent{event.socket, PollOp::kSend, *result};
  }
  if (event.result == 0) {
    failure_ = Status(Code::kUnavailable, "connection closed by peer without TLS close_notify");
    result = -ECONNRESET;
  } else if (event.result > 0) {
    take_received(event.result);
    result = pump_receive(ReceiveMode::kSome);
  }
  if (!result) return std::nullopt;
  return PollEvent{event.socket, PollOp::kReceive, *result};
}

}  // namespace headrace::transfer
