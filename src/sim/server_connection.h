#pragma once
/// \file
/// One client connection: a state machine over a non-blocking socket. Owner thread only; never
/// blocks on the socket.
///
/// | state   | waits for                        | then                                         |
/// |---------|----------------------------------|----------------------------------------------|
/// | kHead   | a whole request head             | kBody when there is one, else kDelay; idle:  |
/// |         |                                  | closed                                       |
/// | kBody   | body bytes, the pacers           | kDelay                                       |
/// | kDelay  | the drawn first-byte time        | kSend; kReset when it is dropped             |
/// | kSend   | room in the socket, the pacers   | kHead, kLinger, kReset                       |
/// | kReset  | the client to have what was sent | closed with a TCP reset                      |
/// | kLinger | the client to close              | closed (at once could reset what was sent)   |
#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "headrace/clock.h"
#include "sim/pacer.h"
#include "sim/service.h"
#include "sim/wire.h"

namespace headrace::sim {

class ServerConnection {
 public:
  /// What the loop must do after drive().
  enum class Next : std::uint8_t {
    kWait,   ///< Call again on events, or at wake_at().
    kYield,  ///< Call again soon: others first.
    kClose,  ///< Destroy it.
  };

  /// `scratch`: for bodies; shared by the connections of a thread.
  ServerConnection(Wire wire, const Peer& peer, Service& service, std::span<char> scratch);
  ~ServerConnection();
  ServerConnection(const ServerConnection&) = delete;
  ServerConnection& operator=(const ServerConnection&) = delete;

  int fd() const noexcept { return wire_.fd(); }
  /// Edge-triggered readiness, as epoll reports it.
  void on_events(bool is_readable, bool is_writable) noexcept {
    // TLS may want the one to do the other.
    is_readable_ |= is_readable || wire_.is_tls();
    is_writable_ |= is_writable || wire_.is_tls();
  }
  Next drive(TimePoint now);
  /// TimePoint::max(): no timer.
  TimePoint wake_at() const noexcept { return wake_at_; }

 private:
  enum class State : std::uint8_t { kHead, kBody, kDelay, kSend, kReset, kLinger };
  /// One state's work: kAgain goes on with the (new) state, the others leave drive().
  enum class Step : std::uint8_t { kAgain, kWait, kYield, kClose };

  Step step(TimePoint now);
  Step read_head(TimePoint now);
  Step read_body(TimePoint now);
  Step wait_first_byte(TimePoint now);
  Step send_some(TimePoint now);
  Step send_text();
  Step send_file(TimePoint now);
  Step send_flipped_byte();
  Step wait_for_request(TimePoint now);
  Step finish_exchange(TimePoint now);
  Step drain_then_reset(TimePoint now);
  Step linger(TimePoint now);

  void begin_exchange();
  void start_answer(TimePoint now);
  void plan_body();
  /// How many of `wanted` bytes of the body may move now; 0: not before `again`.
  std::uint64_t allow(std::uint64_t wanted, TimePoint now, TimePoint& again);
  void take(std::uint64_t bytes) noexcept;
  void refuse_head();
  /// recv() into `target`; kAgain when bytes came (count in `received`).
  Step receive(std::span<char> target, std::size_t& received);
  Step sleep_until(TimePoint when) noexcept {
    wake_at_ = when;
    return Step::kWait;
  }

  Wire wire_;
  const Peer peer_;
  Service& service_;
  const std::span<char> scratch_;
  State state_ = State::kHead;
  bool is_readable_ = true;  // unknown: try
  bool is_writable_ = true;
  TimePoint wake_at_ = TimePoint::max();

  std::vector<char> input_;  // [input_begin_, input_end_) is unread
  std::size_t input_begin_ = 0;
  std::size_t input_end_ = 0;
  std::string head_copy_;  // requests with a body: its bytes would push the head out of input_
  http::RequestHead head_;
  std::size_t head_bytes_ = 0;  // of input_, to be dropped when the exchange ends
  Exchange exchange_;
  Pacer pacer_;
  std::uint64_t slot_bytes_ = 0;  // booked of shared bandwidth, to be moved from slot_at_ on
  TimePoint slot_at_{};
  std::uint64_t request_count_ = 0;
  TimePoint idle_since_ = TimePoint::min();  // min: unknown, take the next now

  TimePoint begun_at_{};
  TimePoint limit_at_{};  // of kReset and kLinger
  std::string output_;    // head, and body when it is text
  std::size_t output_sent_ = 0;
  std::uint64_t file_offset_ = 0;
  std::uint64_t file_left_ = 0;  // still to send, up to a planned cut
  std::uint64_t body_sent_ = 0;
  bool is_cut_ = false;
  std::uint64_t mark_offset_ = UINT64_MAX;  // in the file: where it stalls or a bit is flipped
  TimePoint stalled_until_ = TimePoint::min();
};

}  // namespace headrace::sim
