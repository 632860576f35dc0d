// Nothing here waits: drive() goes from state to state until it needs an event or a time, and says
// so. The states are in the header's table.
//
// Invariants:
// - is_readable_ and is_writable_ are cleared by EAGAIN only. Cleared for any other reason, the
//   edge that would set them again has passed already, and the connection sleeps for ever.
// - head_ has views into input_, or into head_copy_ when there is a body. The head's bytes are
//   dropped when the exchange ends, not before.
// - Requests are answered one at a time, in order; what a client sends ahead waits in input_.
// - Of bodies at most kTurnBytes move in one turn, in either direction.
// - Each planned fault of a body is a mark at an offset of the file. Sending stops exactly there,
//   since the client's behaviour at that byte is what is tested.
// - Service::finished() counts an exchange whose answer was sent to its end or to its cut, or that
//   was dropped. Where the client went away before, only what is in progress is put right, by
//   release().
#include "sim/server_connection.h"

#include <linux/sockios.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "http/response.h"

namespace headrace::sim {
namespace {

// One connection's share of a turn of the loop: more would let a fast reader starve the others.
constexpr std::uint64_t kTurnBytes = 4 << 20;
// How long closing waits for the client. A reset waits so that the bytes before it arrive: a cut is
// then where it was planned.
constexpr std::chrono::milliseconds kLingerLimit{2000};
constexpr std::chrono::milliseconds kDrainPoll{1};

}  // namespace

ServerConnection::ServerConnection(Wire wire, const Peer& peer, Service& service,
                                   std::span<char> scratch)
    : wire_(std::move(wire)),
      peer_(peer),
      service_(service),
      scratch_(scratch),
      input_(http::kMaxHeadBytes) {}

ServerConnection::~ServerConnection() { service_.release(exchange_); }

ServerConnection::Next ServerConnection::drive(TimePoint now) {
  wake_at_ = TimePoint::max();
  service_.refresh();
  const SimAddress::State address = service_.address(peer_.address_index).state;
  if (address == SimAddress::State::kRefuse) {
    wire_.reset_on_close();
    return Next::kClose;
  }
  // Mute: all are driven again when that changes.
  if (address != SimAddress::State::kUp) return Next::kWait;
  while (true) {
    switch (step(now)) {
      case Step::kAgain:
        break;
      case Step::kWait:
        return Next::kWait;
      case Step::kYield:
        return Next::kYield;
      case Step::kClose:
        return Next::kClose;
    }
  }
}

ServerConnection::Step ServerConnection::step(TimePoint now) {
  switch (state_) {
    case State::kHead:
      return read_head(now);
    case State::kBody:
      return read_body(now);
    case State::kDelay:
      return wait_first_byte(now);
    case State::kSend:
      return send_some(now);
    case State::kReset:
      return drain_then_reset(now);
    case State::kLinger:
      break;
  }
  return linger(now);
}

ServerConnection::Step ServerConnection::receive(std::span<char> target, std::size_t& received) {
  if (!is_readable_) return Step::kWait;
  const ssize_t count = wire_.receive(target);
  if (count > 0) {
    received = static_cast<std::size_t>(count);
    return Step::kAgain;
  }
  if (count < 0 && errno == EINTR) return Step::kAgain;
  if (count == 0 || errno != EAGAIN) return Step::kClose;
  is_readable_ = false;
  return Step::kWait;
}

ServerConnection::Step ServerConnection::read_head(TimePoint now) {
  if (input_begin_ == input_end_) {
    input_begin_ = input_end_ = 0;
    if (service_.behaviour().idle_close_ms > 0) return wait_for_request(now);
  } else {
    const std::string_view bytes(input_.data() + input_begin_, input_end_ - input_begin_);
    const auto parsed = http::parse_request_head(bytes, head_);
    if (!parsed) {
      refuse_head();
      return Step::kAgain;
    }
    if (*parsed > 0) {
      head_bytes_ = *parsed;
      begin_exchange();
      return Step::kAgain;
    }
    if (input_begin_ > 0) {
      std::memmove(input_.data(), input_.data() + input_begin_, bytes.size());
      input_end_ = bytes.size();
      input_begin_ = 0;
    }
  }
  std::size_t received = 0;
  const Step step = receive(std::span(input_).subspan(input_end_), received);
  input_end_ += received;
  return step;
}

ServerConnection::Step ServerConnection::wait_for_request(TimePoint now) {
  if (idle_since_ == TimePoint::min()) idle_since_ = now;
  std::size_t received = 0;
  const Step step = receive(input_, received);
  input_end_ += received;
  if (step != Step::kWait) return step;
  const auto limit = std::chrono::duration<double, std::milli>(service_.behaviour().idle_close_ms);
  const TimePoint due = idle_since_ + std::chrono::duration_cast<std::chrono::nanoseconds>(limit);
  return now >= due ? Step::kClose : sleep_until(due);
}

/// Not HTTP: nothing can be said about what follows.
void ServerConnection::refuse_head() {
  head_ = http::RequestHead();
  output_ =
      "HTTP/1.1 400 Bad Request\r\nConnection: close\r\nContent-Length: 0\r\nServer: "
      "headrace-sim\r\n\r\n";
  output_sent_ = 0;
  file_left_ = body_sent_ = 0;
  is_cut_ = false;
  input_begin_ = input_end_ = head_bytes_ = 0;
  exchange_.clear();
  exchange_.target = Target();
  exchange_.response.status = 400;
  exchange_.response.close = true;
  state_ = State::kSend;
}

void ServerConnection::begin_exchange() {
  // Anew: this may be a further request of one drive(), and advance() may have come between.
  const TimePoint now = service_.now();
  begun_at_ = now;
  if (head_.is_chunked || head_.content_length.value_or(0) > 0) {
    head_copy_.assign(input_.data() + input_begin_, head_bytes_);
    input_begin_ += head_bytes_;
    head_bytes_ = 0;
    (void)http::parse_request_head(head_copy_, head_);  // parsed before: cannot fail
  }
  service_.begin(head_, peer_, now, exchange_);
  ++request_count_;
  slot_bytes_ = 0;
  pacer_.set_rate(service_.connection_bytes_per_s(exchange_));
  pacer_.start(now);
  if (!exchange_.body || exchange_.body->done()) {
    state_ = State::kDelay;
    return;
  }
  if (head_.expects_continue) {
    if (exchange_.refusal != S3Code::kNone) {
      // The client has not sent the body and, told why, will not.
      exchange_.body.reset();
      exchange_.response.close = true;
      state_ = State::kDelay;
      return;
    }
    // The send buffer is empty or nearly so: all requests before this one were answered.
    constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";
    (void)wire_.send(kContinue, false);
  }
  state_ = State::kBody;
}

ServerConnection::Step ServerConnection::read_body(TimePoint now) {
  BodyReader& body = *exchange_.body;
  if (input_begin_ < input_end_) {
    const std::string_view bytes(input_.data() + input_begin_, input_end_ - input_begin_);
    input_begin_ += body.feed(bytes);
  }
  for (std::uint64_t turn_bytes = 0; !body.done();) {
    const std::uint64_t left = body.bytes_left();
    std::uint64_t wanted =
        left > 0 ? std::min<std::uint64_t>(left, scratch_.size()) : scratch_.size();
    TimePoint again;
    wanted = allow(wanted, now, again);
    if (wanted == 0) return sleep_until(again);
    if (turn_bytes >= kTurnBytes) return Step::kYield;
    std::size_t received = 0;
    const Step step = receive(scratch_.first(static_cast<std::size_t>(wanted)), received);
    if (step != Step::kAgain) return step;
    take(received);
    turn_bytes += received;
    const std::string_view bytes(scratch_.data(), received);
    const std::string_view rest = bytes.substr(body.feed(bytes));
    if (!rest.empty()) {
      // The next request came along with the end of a chunked body.
      input_.resize(std::max(input_.size(), rest.size() + http::kMaxHeadBytes));
      std::memcpy(input_.data(), rest.data(), rest.size());
      input_begin_ = 0;
      input_end_ = rest.size();
    }
  }
  // An upload is acknowledged that long after its last byte.
  begun_at_ = now;
  state_ = State::kDelay;
  return Step::kAgain;
}

std::uint64_t ServerConnection::allow(std::uint64_t wanted, TimePoint now, TimePoint& again) {
  const std::uint64_t count = pacer_.allow(wanted, now);
  if (count == 0) again = pacer_.ready_at(wanted, now);
  if (count == 0 || !service_.shares_bandwidth()) return count;
  if (slot_bytes_ == 0) {
    const Service::Slot slot = service_.book(exchange_, file_offset_, count, now);
    slot_bytes_ = slot.bytes;
    slot_at_ = slot.at;
  }
  again = slot_at_;
  return now < slot_at_ ? 0 : std::min(count, slot_bytes_);
}

void ServerConnection::take(std::uint64_t bytes) noexcept {
  pacer_.take(bytes);
  slot_bytes_ -= std::min(slot_bytes_, bytes);
}

ServerConnection::Step ServerConnection::wait_first_byte(TimePoint now) {
  const TimePoint due = begun_at_ + Microseconds(exchange_.fate.first_byte_us);
  if (exchange_.fate.first_byte_us > 0 && now < due) return sleep_until(due);
  if (exchange_.fate.answer == Fate::Answer::kDrop) {
    service_.finished(exchange_, 0, true);
    wire_.reset_on_close();
    return Step::kClose;
  }
  start_answer(now);
  return Step::kAgain;
}

void ServerConnection::start_answer(TimePoint now) {
  service_.answer(head_, exchange_);
  Response& response = exchange_.response;
  const double request_limit = service_.behaviour().close_after_requests;
  if (request_limit > 0 && static_cast<double>(request_count_) >= request_limit) {
    response.close = true;
  }
  output_.clear();
  service_.append_head(exchange_, service_.wall_now(), output_);
  output_sent_ = body_sent_ = file_left_ = 0;
  is_cut_ = false;
  if (response.has_body && response.file) {
    file_offset_ = response.offset_bytes;
    file_left_ = response.length_bytes;
    plan_body();
  } else if (response.has_body) {
    output_ += response.body;
    body_sent_ = response.body.size();
  }
  pacer_.start(now);
  state_ = State::kSend;
}

void ServerConnection::plan_body() {
  mark_offset_ = UINT64_MAX;
  const Fate::Cut cut = exchange_.fate.cut;
  if (cut == Fate::Cut::kNone || file_left_ == 0) return;
  const auto share =
      static_cast<std::uint64_t>(static_cast<double>(file_left_) * exchange_.fate.cut_fraction);
  if (cut == Fate::Cut::kReset || cut == Fate::Cut::kTruncate) {
    is_cut_ = true;
    file_left_ = share;
  } else {
    mark_offset_ = file_offset_ + share;
  }
}

ServerConnection::Step ServerConnection::send_some(TimePoint now) {
  if (output_sent_ < output_.size()) return send_text();
  return file_left_ > 0 ? send_file(now) : finish_exchange(now);
}

ServerConnection::Step ServerConnection::send_text() {
  if (!is_writable_) return Step::kWait;
  const ssize_t sent = wire_.send(std::string_view(output_).substr(output_sent_), file_left_ > 0);
  if (sent < 0) {
    if (errno == EINTR) return Step::kAgain;
    if (errno != EAGAIN) return Step::kClose;
    is_writable_ = false;
    return Step::kWait;
  }
  output_sent_ += static_cast<std::size_t>(sent);
  return Step::kAgain;
}

ServerConnection::Step ServerConnection::send_file(TimePoint now) {
  std::uint64_t turn_left = kTurnBytes;
  if (now < stalled_until_) return sleep_until(stalled_until_);
  while (file_left_ > 0) {
    if (!is_writable_) return Step::kWait;
    if (turn_left == 0) return Step::kYield;
    if (file_offset_ == mark_offset_) {
      if (exchange_.fate.cut == Fate::Cut::kCorrupt) return send_flipped_byte();
      mark_offset_ = UINT64_MAX;
      const auto stall = std::chrono::duration<double, std::milli>(service_.behaviour().stall_ms);
      stalled_until_ = now + std::chrono::duration_cast<std::chrono::nanoseconds>(stall);
      return sleep_until(stalled_until_);
    }
    const std::uint64_t to_mark = mark_offset_ > file_offset_ ? mark_offset_ - file_offset_ : 1;
    TimePoint again;
    const std::uint64_t count = allow(std::min({file_left_, turn_left, to_mark}), now, again);
    if (count == 0) return sleep_until(again);
    const ssize_t sent =
        wire_.send_file(exchange_.response.file->fd.get(), file_offset_, count, scratch_);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && errno == EAGAIN) {
      is_writable_ = false;
      return Step::kWait;
    }
    // 0: the file became shorter under us; the client must not take the rest for a body.
    if (sent <= 0) return Step::kClose;
    const auto moved = static_cast<std::uint64_t>(sent);
    take(moved);
    file_offset_ += moved;
    file_left_ -= moved;
    turn_left -= moved;
    body_sent_ += moved;
  }
  return Step::kAgain;
}

ServerConnection::Step ServerConnection::send_flipped_byte() {
  char byte = 0;
  if (::pread(exchange_.response.file->fd.get(), &byte, 1, static_cast<off_t>(file_offset_)) != 1)
    return Step::kClose;
  byte = static_cast<char>(byte ^ 0x10);
  const ssize_t sent = wire_.send({&byte, 1}, false);
  if (sent < 0 && errno != EAGAIN && errno != EINTR) return Step::kClose;
  if (sent < 0) {
    is_writable_ = errno == EINTR;
    return is_writable_ ? Step::kAgain : Step::kWait;
  }
  mark_offset_ = UINT64_MAX;
  ++file_offset_;
  --file_left_;
  ++body_sent_;
  return Step::kAgain;
}

ServerConnection::Step ServerConnection::finish_exchange(TimePoint now) {
  service_.finished(exchange_, body_sent_, is_cut_);
  exchange_.response.file.reset();
  input_begin_ += head_bytes_;
  head_bytes_ = 0;
  if (is_cut_ && exchange_.fate.cut == Fate::Cut::kReset) {
    state_ = State::kReset;
    limit_at_ = now + kLingerLimit;
  } else if (is_cut_ || exchange_.response.close) {
    wire_.finish();
    state_ = State::kLinger;
    limit_at_ = now + kLingerLimit;
  } else {
    state_ = State::kHead;
    idle_since_ = now;
  }
  return Step::kAgain;
}

ServerConnection::Step ServerConnection::drain_then_reset(TimePoint now) {
  int unsent_bytes = 0;
  if (now < limit_at_ && ::ioctl(wire_.fd(), SIOCOUTQ, &unsent_bytes) == 0 && unsent_bytes > 0) {
    return sleep_until(now + kDrainPoll);
  }
  wire_.reset_on_close();
  return Step::kClose;
}

ServerConnection::Step ServerConnection::linger(TimePoint now) {
  if (now >= limit_at_) return Step::kClose;
  std::size_t received = 0;
  const Step step = receive(scratch_, received);
  return step == Step::kWait ? sleep_until(limit_at_) : step;
}

}  // namespace headrace::sim
