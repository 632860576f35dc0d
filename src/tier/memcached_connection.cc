// Invariants:
// - queue_ holds the items without an answer, oldest first; of these the first sent_count_ were
//   handed to the kernel. Answers come in that order, and each repeats its item's number ("O"): an
//   answer with another number, or to nobody, means that the stream is out of step, and only a new
//   connection helps.
// - An item leaves the queue by end_head() or finish_close(), and its owner hears of it once.
// - The reader's memory is written to only while its item is at the head. While the kernel has an
//   operation (is_busy()) the item stays there: kClosing waits for it, and so fail() never frees
//   what the kernel writes into.
// - Received and not taken are [begin_, end_) of buffer_. Large values go where they belong instead
//   (direct_bytes_), and only when the buffer is empty, or bytes would change places.
// - The header of a part is compared whole before the part counts (check_remote_header()): keys of
//   two extents may not collide, but servers lose, mix up and cut off values.
// - The timer is that of the item at the head, or of connecting.
#include "tier/memcached_connection.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <optional>
#include <utility>

#include "base/check.h"

namespace headrace::tier {
namespace {

/// A server that gives less is slow: bytes of the item at the head get as long as that takes.
constexpr std::uint64_t kLeastBytesPerMs = 10'000;
/// Get commands are sent in pieces of about so many bytes.
constexpr std::size_t kSentBytes = std::size_t{32} << 10;
constexpr std::string_view kNewline = "\r\n";

std::uint64_t size_of(const MemcachedItem& item) noexcept {
  return item.transfer->is_put() ? item.value.size() : item.data.size();
}

/// The number behind `prefix`, of all digits that `word` has.
std::optional<std::uint64_t> number_of(std::string_view word, std::string_view prefix) {
  if (!word.starts_with(prefix)) return std::nullopt;
  word.remove_prefix(prefix.size());
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  if (word.empty() || error != std::errc() || end != word.data() + word.size()) return std::nullopt;
  return value;
}

/// Of a get or a release, but for its number. The first part of an extent is the one to claim: the
/// server makes an empty item for the first who asks for one that is missing (N), and tells (W, Z).
std::string command_of(const MemcachedItem& item) {
  if (item.transfer->kind == MemcachedTransfer::Kind::kRelease) return "md " + item.key;
  const bool claims = item.transfer->get.claims && item.from_bytes == 0;
  const auto life = std::to_string(RemoteCache::kClaimLife.count());
  return "mg " + item.key + " v" + (claims ? " N" + life : std::string());
}

std::string_view take_word(std::string_view& line) {
  const std::size_t end = std::min(line.find(' '), line.size());
  const std::string_view word = line.substr(0, end);
  line.remove_prefix(std::min(end + 1, line.size()));
  return word;
}

}  // namespace

std::string memcached_key(const ExtentName& extent, std::uint64_t part, std::uint64_t part_count) {
  return "hr1:" + file_name(extent) + "-" + std::to_string(part) + "." + std::to_string(part_count);
}

// --- opening and closing ---

void MemcachedConnection::add(MemcachedItem item) {
  // Servers close idle connections, and restart.
  if (state_ == State::kOpen && queue_.empty() && !is_quiet(socket_)) close();
  if (state_ == State::kClosing) {
    owner_.note_failure(*this);
    return owner_.end_item(*this, item, Outcome::kFailed);
  }
  waiting_bytes_ += size_of(item);
  queue_.push_back(std::move(item));
  if (state_ == State::kClosed) state_ = State::kAddressless;
  if (queue_.size() == 1) set_timer();
}

void MemcachedConnection::set_timer() {
  const MemcachedItem& head = queue_.front();
  const std::chrono::milliseconds moving(size_of(head) / kLeastBytesPerMs);
  TimePoint until = system_clock().now() + timeout_ + moving;
  if (!head.transfer->is_put()) until = std::min(until, head.transfer->get.deadline);
  timers_.set(timer_, until);
}

void MemcachedConnection::connect(const NetAddress& address) {
  HEADRACE_CHECK(wants_address());
  state_ = State::kConnecting;
  if (poller_.open(socket_, address.family()) < 0) return fail();
  const auto result = poller_.connect(socket_, address.get(), address.size_bytes);
  if (result) end_connect(*result);
}

void MemcachedConnection::end_connect(std::int64_t result) {
  if (result < 0) return fail();
  state_ = State::kOpen;
  buffer_.resize(kBufferBytes);
  set_timer();
  flush();
}

void MemcachedConnection::fail() {
  if (state_ == State::kClosed || state_ == State::kClosing) return;
  state_ = State::kClosing;
  owner_.note_failure(*this);
  if (socket_.is_busy()) return poller_.cancel(socket_);
  finish_close();
}

void MemcachedConnection::close() {
  HEADRACE_CHECK(queue_.empty());
  if (state_ != State::kOpen) return;
  state_ = State::kClosing;
  if (socket_.is_busy()) return poller_.cancel(socket_);
  finish_close();
}

void MemcachedConnection::finish_close() {
  poller_.close(socket_);
  timers_.clear(timer_);
  state_ = State::kClosed;
  std::deque<MemcachedItem> items;
  items.swap(queue_);
  sent_count_ = begin_ = end_ = direct_bytes_ = 0;
  waiting_bytes_ = next_number_ = head_number_ = 0;
  wants_newline_ = is_in_value_ = is_receiving_ = false;
  for (MemcachedItem& item : items) owner_.end_item(*this, item, Outcome::kFailed);
}

void MemcachedConnection::handle(const PollEvent& event) {
  if (state_ == State::kClosing) {
    if (!socket_.is_busy()) finish_close();
    return;
  }
  if (state_ == State::kClosed) return;  // The other event of a connection that has ended.
  if (event.op == PollOp::kConnect) return end_connect(event.result);
  if (event.op == PollOp::kSend && event.result < 0) return fail();
  if (event.op == PollOp::kReceive) {
    is_receiving_ = false;
    if (!take_received(event.result)) return;
  }
  flush();
}

// --- sending ---

void MemcachedConnection::flush() {
  while (state_ == State::kOpen && !socket_.is_sending()) {
    std::span<const std::byte> body;
    if (!prepare(body)) break;
    const auto result = poller_.send(socket_, std::as_bytes(std::span(text_)), body);
    if (!result) break;
    if (*result < 0) return fail();
  }
  receive();
}

bool MemcachedConnection::prepare(std::span<const std::byte>& body) {
  text_.clear();
  if (std::exchange(wants_newline_, false)) text_ += kNewline;
  while (sent_count_ < queue_.size() && text_.size() < kSentBytes) {
    const MemcachedItem& item = queue_[sent_count_++];
    const std::string number = " O" + std::to_string(next_number_++);
    if (!item.transfer->is_put()) {
      text_ += command_of(item) + number + "\r\n";
      continue;
    }
    text_ += "ms " + item.key + " " + std::to_string(item.value.size()) + number + "\r\n";
    body = item.value;
    wants_newline_ = true;
    break;
  }
  return !text_.empty();
}

// --- receiving ---

void MemcachedConnection::receive() {
  while (state_ == State::kOpen && !queue_.empty() && !is_receiving_) {
    std::span<std::byte> into = value_rest();
    direct_bytes_ = begin_ == end_ && into.size() >= kDirectBytes ? into.size() : 0;
    if (direct_bytes_ == 0) {
      std::copy(buffer_.begin() + static_cast<std::ptrdiff_t>(begin_),
                buffer_.begin() + static_cast<std::ptrdiff_t>(end_), buffer_.begin());
      end_ -= std::exchange(begin_, 0);
      into = std::span(buffer_).subspan(end_);
    }
    // Not kSomeLater: more answers may be there already.
    const ReceiveMode mode = direct_bytes_ > 0 ? ReceiveMode::kAll : ReceiveMode::kSome;
    const auto result = poller_.receive(socket_, into, mode);
    is_receiving_ = !result;
    if (!result || !take_received(*result)) return;
  }
}

bool MemcachedConnection::take_received(std::int64_t result) {
  const bool is_short = direct_bytes_ > 0 && std::cmp_less(result, direct_bytes_);
  if (result <= 0 || is_short) {
    fail();
    return false;
  }
  if (direct_bytes_ > 0) {
    value_at_ += std::exchange(direct_bytes_, 0);
  } else {
    end_ += static_cast<std::size_t>(result);
  }
  if (parse()) return true;
  fail();
  return false;
}

bool MemcachedConnection::parse() {
  while (begin_ < end_) {
    if (sent_count_ == 0) return false;  // Nobody asked.
    if (is_in_value_) {
      if (!take_value()) return false;
      continue;
    }
    const auto* const text = reinterpret_cast<const char*>(buffer_.data());
    const std::string_view received(text + begin_, end_ - begin_);
    const std::size_t end = received.find('\n');
    if (end == std::string_view::npos) return received.size() < kMostLineBytes;
    if (end == 0 || received[end - 1] != '\r') return false;
    begin_ += end + 1;
    if (!take_line(received.substr(0, end - 1))) return false;
  }
  return true;
}

bool MemcachedConnection::take_line(std::string_view line) {
  const MemcachedTransfer::Kind kind = queue_.front().transfer->kind;
  const bool is_get = kind == MemcachedTransfer::Kind::kGet;
  const std::string_view word = take_word(line);
  if (word == "SERVER_ERROR") {
    end_head(Outcome::kRefused);
    return true;
  }
  if (is_get && word == "EN") {
    end_head(Outcome::kMissing);
    return true;
  }
  const auto size = is_get && word == "VA" ? number_of(take_word(line), "") : std::nullopt;
  if (number_of(take_word(line), "O") != head_number_) return false;
  const bool is_gone = kind == MemcachedTransfer::Kind::kRelease && word == "NF";
  if (!is_get && (word == "HD" || word == "NS" || is_gone)) {
    end_head(word == "NS" ? Outcome::kRefused : Outcome::kDone);
    return true;
  }
  constexpr std::uint64_t kMostValueBytes = std::uint64_t{1} << 30;
  if (!size || *size > kMostValueBytes) return false;
  is_in_value_ = true;
  value_bytes_ = *size;
  value_at_ = 0;
  claim_.reset();
  for (auto flag = take_word(line); *size == 0 && !flag.empty(); flag = take_word(line)) {
    if (flag == "W") claim_ = Outcome::kClaimed;
    if (flag == "Z") claim_ = Outcome::kTaken;
  }
  header_.resize(header_bytes());
  is_skipped_ = *size != header_.size() + queue_.front().data.size();
  return true;
}

/// Where the next bytes of the value go, if to the reader; the line's end comes through the buffer.
std::span<std::byte> MemcachedConnection::value_rest() {
  if (!is_in_value_ || is_skipped_ || value_at_ < header_.size()) return {};
  return queue_.front().data.subspan(
      std::min<std::size_t>(value_at_ - header_.size(), queue_.front().data.size()));
}

bool MemcachedConnection::take_value() {
  const auto received = std::span(buffer_).subspan(begin_, end_ - begin_);
  const auto put = [&](std::span<std::byte> into) {
    const std::size_t count = std::min(into.size(), received.size());
    std::memcpy(into.data(), received.data(), count);
    return count;
  };
  std::size_t count = 0;
  if (value_at_ >= value_bytes_) {
    count = put(std::as_writable_bytes(std::span(line_end_)).subspan(value_at_ - value_bytes_));
  } else if (is_skipped_) {
    count = std::min<std::size_t>(value_bytes_ - value_at_, received.size());
  } else if (value_at_ < header_.size()) {
    count = put(std::span(header_).subspan(value_at_));
  } else {
    count = put(value_rest());
  }
  begin_ += count;
  value_at_ += count;
  if (value_at_ < value_bytes_ + kNewline.size()) return true;
  if (std::string_view(line_end_, kNewline.size()) != kNewline) return false;
  end_value();
  return true;
}

void MemcachedConnection::end_value() {
  is_in_value_ = false;
  if (claim_) return end_head(*claim_);
  const MemcachedItem& item = queue_.front();
  MemcachedTransfer& transfer = *item.transfer;
  const auto size =
      is_skipped_ ? std::nullopt
                  : check_remote_header(transfer.extent(), item.from_bytes, item.data, header_);
  if (size) transfer.object_size_bytes = *size;
  end_head(size ? Outcome::kDone : Outcome::kCorrupt);
}

void MemcachedConnection::end_head(Outcome outcome) {
  MemcachedItem item = std::move(queue_.front());
  queue_.pop_front();
  --sent_count_;
  ++head_number_;
  waiting_bytes_ -= size_of(item);
  if (queue_.empty()) {
    timers_.clear(timer_);
  } else {
    set_timer();
  }
  owner_.end_item(*this, item, outcome);
}

}  // namespace headrace::tier
