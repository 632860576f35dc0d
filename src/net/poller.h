#pragma once
/// \file
/// Poller: socket operations with their completions, over io_uring or epoll. Both behave the same
/// and pass the same tests.
///
/// Proactor style: the caller starts an operation with its buffer and gets one completion for it.
/// What can finish at once may do so in the starting call, which then returns the result without
/// an event: epoll tries every operation, io_uring a send.
///
/// Place: below transfer/, which owns the sockets and the thread. Knows no HTTP.
///
/// Threads: all functions from the owner thread, which is the one that first calls poll() or starts
/// an operation; wake() from any thread.
#include <sys/socket.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "headrace/status.h"

namespace headrace {

/// Longest single kernel operation, bytes; longer buffers are moved piece by piece. io_uring and
/// recv() count in 32 bits.
constexpr std::size_t kMaxOperationBytes = std::size_t{1} << 30;

enum class PollOp : std::uint8_t { kReceive = 0, kSend = 1, kConnect = 2 };

enum class ReceiveMode : std::uint8_t {
  kSome,       ///< Completes with the first bytes that come.
  kSomeLater,  ///< As kSome, and an answer is not expected to be there yet: does not try at once.
  kAll,  ///< Completes when the buffer is full, at the end of the stream (short count), or with an
         ///< error.
};

/// A TCP or Unix stream socket and its operations in progress: at most one kReceive and one kSend
/// or kConnect at a time. Must stay at its address, and its buffers alive, until each operation has
/// completed. Closed by Poller::close() only.
class PollSocket {
 public:
  explicit PollSocket(void* owner_in = nullptr) noexcept : owner(owner_in) {}
  PollSocket(const PollSocket&) = delete;
  PollSocket& operator=(const PollSocket&) = delete;
  ~PollSocket();  ///< \pre closed

  bool is_open() const noexcept { return fd_ >= 0; }
  int fd() const noexcept { return fd_; }
  bool is_receiving() const noexcept { return in_.is_pending; }
  bool is_sending() const noexcept { return out_.is_pending; }  ///< Or connecting.
  bool is_busy() const noexcept { return is_receiving() || is_sending(); }

  void* const owner;  ///< For the caller.

 private:
  friend class UringPoller;
  friend class EpollPoller;
  struct Inbound {
    std::byte* data = nullptr;
    std::size_t size_bytes = 0;
    std::size_t done_bytes = 0;
    ReceiveMode mode = ReceiveMode::kSome;
    bool is_pending = false;
    bool is_cancelled = false;
  };
  struct Outbound {
    std::array<iovec, 2> pieces{};  // what is left to send
    msghdr message{};
    sockaddr_storage address{};
    socklen_t address_bytes = 0;
    std::size_t done_bytes = 0;
    PollOp op = PollOp::kSend;
    bool is_pending = false;
    bool is_cancelled = false;
  };
  int fd_ = -1;
  // Edge-triggered readiness, epoll only. `is_hung_up` is sticky: after it, reads find the end or
  // the error at once.
  bool is_readable_ = false;
  bool is_writable_ = false;
  bool is_hung_up_ = false;
  Inbound in_;
  Outbound out_;
};

/// One finished operation. `result`: bytes moved (kReceive: 0 is the end of the stream; kAll short
/// of its buffer as well), 0 for kConnect, or -errno; -ECANCELED after cancel().
struct PollEvent {
  PollSocket* socket = nullptr;
  PollOp op = PollOp::kReceive;
  std::int64_t result = 0;
};

class Poller {
 public:
  virtual ~Poller() = default;

  /// Gives `socket` a new descriptor (with TCP_NODELAY for AF_INET and AF_INET6). Returns 0 or
  /// -errno. \pre !is_open()
  virtual int open(PollSocket& socket, int family) = 0;
  /// Takes over a connected descriptor. Returns 0 or -errno.
  virtual int adopt(PollSocket& socket, int fd) = 0;
  /// \pre !is_busy(); no effect on a closed socket.
  virtual void close(PollSocket& socket) noexcept = 0;

  // Each starts one operation: a value is its result (see PollEvent) and no event follows; nullopt
  // promises one event.
  virtual std::optional<std::int64_t> connect(PollSocket& socket, const sockaddr* address,
                                              socklen_t address_bytes) = 0;
  virtual std::optional<std::int64_t> receive(PollSocket& socket, std::span<std::byte> buffer,
                                              ReceiveMode mode) = 0;
  /// Sends all of `head`, then all of `body`. The result is the sum of both or an error.
  virtual std::optional<std::int64_t> send(PollSocket& socket, std::span<const std::byte> head,
                                           std::span<const std::byte> body) = 0;

  /// Asks the operations in progress to end. Their events still come, with -ECANCELED or what
  /// happened before; until then the kernel may write to their buffers.
  virtual void cancel(PollSocket& socket) = 0;

  /// Fills `out` (at least 2 entries) with events and returns how many. Waits at most `timeout`
  /// (negative: without limit) for the first; a wake() ends the wait with what there is.
  virtual std::size_t poll(std::span<PollEvent> out, std::chrono::nanoseconds timeout) = 0;

  /// Makes the poll() in progress, or else the next one, return without waiting.
  virtual void wake() noexcept = 0;

  /// "uring" or "epoll".
  virtual const char* name() const noexcept = 0;
};

/// Errors: kUnsupported where the kernel, or a container's seccomp filter, refuses io_uring;
/// kExhausted (descriptors, memory).
Result<std::unique_ptr<Poller>> create_uring_poller();
/// Errors: kExhausted.
Result<std::unique_ptr<Poller>> create_epoll_poller();
/// io_uring where it is allowed, else epoll. Errors: kExhausted.
Result<std::unique_ptr<Poller>> create_best_poller();

/// Bytes that the peer sent or acknowledged on this TCP connection so far: grows as long as it is
/// alive. 0 when unknown. Costs one system call, so that operations of many megabytes can be
/// watched without splitting them.
std::uint64_t progress_bytes(const PollSocket& socket) noexcept;

/// Whether an idle connection is still usable: nothing received, not closed by the peer. One system
/// call.
bool is_quiet(const PollSocket& socket) noexcept;

}  // namespace headrace
