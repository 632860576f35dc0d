#pragma once
/// \file
/// Connection: one keep-alive HTTP/1.1 connection and the attempt that it carries out. Tunnel and
/// TLS are its ByteStream's.
///
/// | state       | waits for                                     | next                       |
/// |-------------|-----------------------------------------------|----------------------------|
/// | kClosed     | begin()                                       | kConnecting, kSending      |
/// | kConnecting | connect; connect_timeout                      | kSending; next address;    |
/// |             |                                               | attempt fails              |
/// | kSending    | the rest of the request to be taken; progress | kHead (answer may come     |
/// |             |                                               | before)                    |
/// | kHead       | the head of the answer; first_byte_timeout    | kBody, kText, attempt ends |
/// | kBody       | the body, into the slab; progress             | attempt ends               |
/// | kText       | the body, as text (errors, calls); progress   | attempt ends               |
/// | kDraining   | the kernel to hand back buffers               | kClosed, attempt ends      |
/// | kIdle       | begin(); 4 s                                  | kSending, kClosed          |
///
/// Every attempt that begin() starts ends in one Progress::kDone; the connection is then kIdle or
/// kClosed.
///
/// Threads: its reactor's.
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "http/response.h"
#include "net/poller.h"
#include "net/timer_heap.h"
#include "store/http_protocol.h"
#include "store/transfer/byte_stream.h"
#include "store/transfer/early_count.h"
#include "store/transfer/endpoint.h"
#include "store/transfer/hedge_policy.h"
#include "store/transfer/transfer_counters.h"
#include "store/transfer/transfer_op.h"
#include "store/transfer/verdict.h"

namespace headrace::transfer {

/// S3 closes idle connections after about 5 s (facts: aws-c-s3, s3_client.c); leaving first avoids
/// a reset in mid-request.
constexpr std::chrono::milliseconds kIdleTimeout{4'000};
/// First read of an answer. Heads are below 1 KiB; what else comes with it is body and gets copied.
constexpr std::size_t kFirstReadBytes = 1024;
/// Longest error body looked at, and longest control-plane answer (1,000 keys of 1 KiB, and then
/// some).
constexpr std::size_t kMaxErrorBytes = 64 << 10;
constexpr std::size_t kMaxAnswerBytes = 16 << 20;

/// What the connections of a reactor work with. Outlives them.
struct ConnectionContext {
  Poller& poller;
  TimerHeap& timers;
  HttpProtocol& protocol;
  const StoreOptions& options;
  const Clock& clock;
  TransferCounters& counters;
  HedgePolicy& hedging;
};

enum class Progress : std::uint8_t { kPending, kDone };

/// How an attempt ended.
struct Outcome {
  Status status;
  bool is_timeout = false;       ///< No connection, or no answer, in time.
  bool is_named = false;         ///< The message says already what was asked.
  bool was_sent = false;         ///< Some of the request may have reached the server.
  bool is_not_ready = false;     ///< The protocol waits for credentials: nothing was attempted.
  bool is_unknown_host = false;  ///< No such name, or not yet.
  /// No sound answer looks like this: garbage, another range, length or version than was asked for,
  /// a body that does not match its checksum, a redirect that leads nowhere. Once, that is an
  /// accident of the way or of one server; `status` is true only when it comes again.
  bool is_doubtful = false;
  std::unique_ptr<HttpRedirect> redirect;  ///< Where the answer sends the request.
  bool is_slow = false;                    ///< It would have taken much longer than is usual;
  bool is_hedged = false;                  ///< and was given up early, for one of the hedges.
  bool is_stale = false;  ///< A kept connection that the server had closed: nothing was answered.
  std::optional<std::chrono::milliseconds> retry_after;
};

class Connection {
 public:
  explicit Connection(const ConnectionContext& context);
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  bool is_idle() const noexcept { return state_ == State::kIdle; }
  bool is_closed() const noexcept { return state_ == State::kClosed; }
  TransferOp* op() const noexcept { return op_; }
  /// Where it is, or was last, connected to.
  Endpoint* endpoint() const noexcept { return endpoint_; }

  /// Starts an attempt at op.endpoint. \pre is_idle() there, or is_closed() and it has addresses.
  Progress begin(TransferOp& op, TimePoint now);
  Progress on_event(const PollEvent& event, TimePoint now);
  /// The connection's timer has fired.
  Progress on_timer(TimePoint now);
  /// Another attempt at the same op has won, or the op is over: lets go of the op at once, and
  /// ends, with op() == nullptr, as soon as the kernel has given its buffers back. The connection
  /// is closed then. \pre op() != nullptr, a get that has not won
  Progress disown();
  /// The other attempt at the same op has failed: this one is the op's only attempt now.
  void promote() noexcept;
  /// The attempt that has ended had no success. \pre op() != nullptr, after Progress::kDone
  bool has_failed() const noexcept { return !outcome_.status.ok(); }
  /// It has failed so that another attempt would not do better: by the store's word, a redirect, or
  /// the end of the op. \pre as has_failed()
  bool is_final() const noexcept;
  /// It is, or was when it won, the younger of two attempts.
  bool is_hedge() const noexcept { return is_hedge_; }
  const NetAddress& address() const noexcept { return address_; }
  /// Ends the attempt with `reason` as soon as the kernel has given its buffers back. \pre op() !=
  /// nullptr
  Progress abort(Status reason);
  /// After kDone: how it ended; gives up the op.
  Outcome take_outcome();

  /// After take_outcome(), when is_idle(): it may wait for the next request until kIdleTimeout from
  /// now.
  void park(TimePoint now);
  /// Whether a kept connection can be used again: still open, and nothing has come that was not
  /// asked for. Asks the kernel only after a pause, or when the answer to `op` does not name the
  /// version it is of, so that one which was not asked for could be taken for it.
  bool is_usable(const TransferOp& op, TimePoint now) const noexcept;
  /// Its address is none that is avoided now.
  bool is_welcome(TimePoint now) const noexcept;
  /// \pre op() == nullptr
  void close();

 private:
  enum class State : std::uint8_t {
    kClosed,
    kConnecting,
    kSending,
    kHead,
    kBody,
    kText,
    kDraining,
    kIdle
  };
  /// What to receive next, when an attempt goes on.
  struct Want {
    std::span<std::byte> buffer;
    ReceiveMode mode = ReceiveMode::kSome;
  };

  Progress connect_next(TimePoint now);
  Progress on_connected(std::int64_t result, TimePoint now);
  Progress send_request(TimePoint now);
  Progress on_sent(std::int64_t result, TimePoint now);
  Progress receive(Want want, TimePoint now);
  std::optional<Want> on_received(std::int64_t result, TimePoint now);
  std::optional<Want> on_head_bytes(std::int64_t result, TimePoint now);
  std::optional<Want> on_head(TimePoint now);
  /// Of what the answer is about, as other calls of the store name it.
  void read_version();
  std::optional<Want> begin_slab_body(std::string_view surplus, TimePoint now);
  std::optional<Want> on_body_bytes(std::int64_t result);
  std::optional<Want> begin_text(std::string_view surplus, TimePoint now);
  std::optional<Want> on_text_bytes(std::int64_t result);
  std::optional<Want> feed_text(std::string_view bytes);
  void move_text();
  std::optional<Want> end_text();
  void end_text_transfer();
  void end_call();

  std::optional<Want> fail(Status status);
  std::optional<Want> fail_doubtful(Status status);
  std::optional<Want> fail_io(std::int64_t result, std::string_view where);
  std::optional<Want> succeed();
  std::optional<Want> redirect(std::string_view location);
  /// What the answer means, which is no success.
  Status error_from(std::string_view what) const;
  bool matches_checksum() const;
  /// Whether what the answer to an upload says of its bytes is what the request says.
  bool confirms_checksum() const;
  std::string_view method() const noexcept;
  void forward_by_proxy();
  Status connect_failure(std::int64_t result) const;
  Status connect_timeout(std::chrono::milliseconds limit) const;
  std::chrono::milliseconds next_address_after() const noexcept;
  Progress finish();
  void claim() noexcept;

  void set_limit(TimePoint when);
  void watch_progress(TimePoint now);
  Progress check_progress(TimePoint now);
  bool is_payload() const noexcept;
  bool takes_long() const noexcept;
  std::uint64_t moving_bytes() const noexcept;
  Microseconds longest_move() const noexcept;
  Microseconds look_interval() const noexcept;
  std::chrono::milliseconds longest_pause() const noexcept;
  bool is_slow(TimePoint now);
  std::span<std::byte> slab_part() const noexcept;

  const ConnectionContext& context_;
  ByteStream stream_;
  Timer timer_;
  EarlyCount sent_;  // of what is being sent, in any state
  EarlyCount received_;
  TimePoint limit_ = TimePoint::max();  // the timer may fire earlier and is then set again
  State state_ = State::kClosed;
  TransferOp* op_ = nullptr;
  Endpoint* endpoint_ = nullptr;
  Outcome outcome_;
  bool is_over_ = false;       // the attempt has its outcome
  bool has_given_up_ = false;  // the connect; another address is next
  bool is_hedge_ = false;      // the op has an older attempt under way
  TimePoint sent_at_{}, first_byte_at_{};
  std::chrono::milliseconds wait_limit_{};  // for the head of this answer
  bool is_reused_ = false;                  // not the first request of this connection
  bool keep_alive_ = false;
  NetAddress address_;  // a copy: the book may be replaced while connecting
  std::size_t addresses_left_ = 0;

  std::string request_head_;
  std::vector<char> head_buffer_;
  std::size_t head_bytes_ = 0;
  http::ResponseHead head_;
  Verdict verdict_;
  Checksum checksum_;
  std::size_t wanted_bytes_ = 0;  // of the slab part being received
  std::string text_;
  std::string version_;  // Where head_.etag points when the answer left its quotes out.
  std::vector<std::byte> text_piece_;
  std::optional<std::uint64_t> text_left_bytes_;  // unset: chunked, or until the end of the stream
  http::ChunkedDecoder chunked_;

  std::uint64_t progress_bytes_ = 0;  // at the last look
  TimePoint progress_at_{};           // when they last grew
  std::uint64_t pace_bytes_ = 0;      // at pace_from_, where the pace is measured from
  TimePoint pace_from_{};             // unset: the next look is the first
  TimePoint looked_at_{};
  TimePoint idle_since_{};
};

}  // namespace headrace::transfer
