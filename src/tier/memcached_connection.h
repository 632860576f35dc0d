#pragma once
/// \file
/// One connection to a memcached server: items asked for and put in order, answers in the same
/// order.
///
/// | state | what goes on | leaves by |
/// |---|---|---|
/// | kClosed | nothing | add(): kAddressless |
/// | kAddressless | items wait for the server's address | connect(): kConnecting |
/// | kConnecting | the kernel connects | its event: kOpen |
/// | kOpen | items are sent as soon as they come; answers are read while any is expected | |
/// | kClosing | operations of the kernel end | the last one: kClosed |
///
/// Whatever does not make sense, or does not come in time, ends the connection from any state:
/// kClosing. Its items then end with kFailed.
///
/// Threads: one owner, that of the poller.
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/clock.h"
#include "net/poller.h"
#include "net/resolver.h"
#include "net/timer_heap.h"
#include "tier/remote_cache.h"

namespace headrace::tier {

/// A get, a put or the release of an extent: as many items as that has parts, of a release one.
struct MemcachedTransfer {
  enum class Kind { kGet, kPut, kRelease };
  RemoteCache::Get get;  ///< Of a put: empty. Of a release: the extent alone.
  RemoteCache::Put put;  ///< Of others: empty.
  Kind kind = Kind::kGet;
  bool is_put() const noexcept { return kind == Kind::kPut; }
  std::size_t items_left = 0;
  RemoteCache::Outcome outcome = RemoteCache::Outcome::kDone;  ///< The worst so far.
  std::uint64_t object_size_bytes = 0;
  const ExtentInfo& extent() const noexcept { return is_put() ? put.extent : get.extent; }
};

struct MemcachedItem {
  std::shared_ptr<MemcachedTransfer> transfer;
  std::string key;
  std::uint64_t from_bytes = 0;      ///< Of the extent.
  std::span<std::byte> data;         ///< Get: where the part's bytes go.
  std::span<const std::byte> value;  ///< Put: what is stored.
};

class MemcachedConnection {
 public:
  using Outcome = RemoteCache::Outcome;

  class Owner {
   public:
    /// Once for each item. May not call the connection.
    virtual void end_item(MemcachedConnection& connection, MemcachedItem& item,
                          Outcome outcome) = 0;
    /// The connection is no good; the ends of its items follow.
    virtual void note_failure(MemcachedConnection& connection) = 0;

   protected:
    ~Owner() = default;
  };

  /// `node`: for the owner.
  MemcachedConnection(Poller& poller, TimerHeap& timers, Owner& owner, std::size_t node,
                      std::chrono::milliseconds timeout)
      : socket_(this),
        node_(node),
        poller_(poller),
        timers_(timers),
        owner_(owner),
        timeout_(timeout),
        timer_(this) {}

  std::size_t node() const noexcept { return node_; }
  bool is_closed() const noexcept { return state_ == State::kClosed; }
  bool wants_address() const noexcept { return state_ == State::kAddressless; }
  /// Of items that have no answer yet.
  std::uint64_t waiting_bytes() const noexcept { return waiting_bytes_; }

  /// Queues an item; flush() or connect() sends it.
  void add(MemcachedItem item);
  void flush();
  /// \pre wants_address()
  void connect(const NetAddress& address);
  void handle(const PollEvent& event);
  /// The item at the head, or connecting, took too long.
  void handle_timer() { fail(); }
  /// Ends the connection; no effect on a closed one.
  void fail();
  /// Ends it without a failure. \pre no items
  void close();

 private:
  enum class State { kClosed, kAddressless, kConnecting, kOpen, kClosing };

  static constexpr std::size_t kBufferBytes = std::size_t{64} << 10;
  static constexpr std::size_t kMostLineBytes = 2048;
  /// From so many on, bytes are received where they belong; fewer through the buffer.
  static constexpr std::size_t kDirectBytes = std::size_t{16} << 10;

  void set_timer();
  bool prepare(std::span<const std::byte>& body);
  void end_connect(std::int64_t result);
  void receive();
  /// False: the connection has failed.
  bool take_received(std::int64_t result);
  bool parse();
  bool take_line(std::string_view line);
  bool take_value();
  std::span<std::byte> value_rest();
  void end_head(Outcome outcome);
  void end_value();
  void finish_close();
  std::size_t header_bytes() const noexcept {
    return remote_header_bytes(queue_.front().transfer->extent());
  }

  PollSocket socket_;
  const std::size_t node_;
  Poller& poller_;
  TimerHeap& timers_;
  Owner& owner_;
  const std::chrono::milliseconds timeout_;
  Timer timer_;
  State state_ = State::kClosed;

  std::deque<MemcachedItem> queue_;
  std::size_t sent_count_ = 0;  // Of the queue, from its head on.
  std::uint64_t waiting_bytes_ = 0;
  std::uint64_t next_number_ = 0;  // The server has to repeat it.
  std::uint64_t head_number_ = 0;
  std::string text_;            // Being sent.
  bool wants_newline_ = false;  // Behind a value that has been sent.

  std::vector<std::byte> buffer_;  // Received; [begin_, end_) is to be looked at.
  bool is_receiving_ = false;      // Until the event has come, which is after the socket is done.
  std::size_t begin_ = 0, end_ = 0;
  std::size_t direct_bytes_ = 0;  // Being received where they belong.
  // The value of the item at the head, while it comes.
  bool is_in_value_ = false;
  bool is_skipped_ = false;        // It has another size than ours can have.
  std::optional<Outcome> claim_;   // It is none, but says who brings it.
  std::uint64_t value_bytes_ = 0;  // Without the line's end.
  std::uint64_t value_at_ = 0;
  std::vector<std::byte> header_;
  char line_end_[2] = {};
};

/// What an item of an extent is called: within memcached's 250 bytes, without blanks.
std::string memcached_key(const ExtentName& extent, std::uint64_t part, std::uint64_t part_count);

}  // namespace headrace::tier
