// From the start of an operation to its completion the kernel may read and write its buffer,
// whatever the caller thinks of it. cancel() therefore only asks: the operation stays pending
// until its own completion has come, and a socket may be closed only then. One request in several
// pieces (kAll, a long send) is one operation outside: pieces are started again here, and one that
// was cancelled between two pieces ends as cancelled.
//
// user_data is the socket's address with the operation in its low bits: no table to look up, and
// an operation that is over cannot be confused with a later one, since a socket has at most one of
// each kind.
#include <liburing.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "base/check.h"
#include "base/event_fd.h"
#include "net/poller.h"
#include "net/poller_internal.h"

namespace headrace {
namespace {

// Submissions collected between two polls; a full queue is handed over early, so this is no limit.
constexpr unsigned kSubmissionEntries = 256;
// Completions that fit before the kernel has to keep them aside: two operations on each of 2,048
// connections.
constexpr unsigned kCompletionEntries = 4096;
// Low bits of user_data name the operation; PollSocket is aligned to 8.
constexpr std::uint64_t kOpMask = 3;
constexpr std::uint64_t kIgnoreData = 3;  // answers to cancellations
constexpr std::uint64_t kWakeData = 7;    // the wake descriptor was read

std::uint64_t data_of(PollSocket& socket, PollOp op) {
  return reinterpret_cast<std::uintptr_t>(&socket) | static_cast<std::uint64_t>(op);
}

}  // namespace

/// The kernel runs completions only inside poll() (DEFER_TASKRUN), on the thread that the ring was
/// enabled on. Descriptors stay in blocking mode: io_uring answers EAGAIN for non-blocking ones
/// instead of waiting.
class UringPoller final : public Poller {
 public:
  explicit UringPoller(EventFd wake) : wake_(std::move(wake)) {}
  ~UringPoller() override {
    if (is_ready_) io_uring_queue_exit(&ring_);
  }
  int init();

  int open(PollSocket& socket, int family) override {
    const int fd = detail::open_stream_socket(family, 0);
    return fd < 0 ? fd : adopt(socket, fd);
  }
  int adopt(PollSocket& socket, int fd) override {
    HEADRACE_DCHECK(!socket.is_open());
    socket.fd_ = fd;
    return 0;
  }
  void close(PollSocket& socket) noexcept override {
    if (!socket.is_open()) return;
    HEADRACE_DCHECK(!socket.is_busy());
    // A child that was forked may have the descriptor, too, and the peer is to be told.
    ::shutdown(socket.fd_, SHUT_RDWR);
    ::close(socket.fd_);
    socket.fd_ = -1;
  }

  std::optional<std::int64_t> connect(PollSocket& socket, const sockaddr* address,
                                      socklen_t address_bytes) override;
  std::optional<std::int64_t> receive(PollSocket& socket, std::span<std::byte> buffer,
                                      ReceiveMode mode) override;
  std::optional<std::int64_t> send(PollSocket& socket, std::span<const std::byte> head,
                                   std::span<const std::byte> body) override;
  void cancel(PollSocket& socket) override;
  std::size_t poll(std::span<PollEvent> out, std::chrono::nanoseconds timeout) override;
  void wake() noexcept override { wake_.signal(); }
  const char* name() const noexcept override { return "uring"; }

 private:
  void enable();
  io_uring_sqe* next_entry();
  void arm_wake();
  void arm_receive(PollSocket& socket);
  void arm_send(PollSocket& socket);
  void cancel_one(std::uint64_t user_data);
  bool finish(PollSocket& socket, PollOp op, std::int64_t result, PollEvent& event);
  bool finish_receive(PollSocket& socket, std::int64_t& result);
  bool finish_send(PollSocket& socket, std::int64_t& result);

  io_uring ring_{};
  bool is_ready_ = false;
  bool is_enabled_ = false;  // the first use makes its thread the owner
  const EventFd wake_;
  std::uint64_t wake_count_ = 0;
};

int UringPoller::init() {
  io_uring_params params{};
  params.flags = IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_COOP_TASKRUN |
                 IORING_SETUP_DEFER_TASKRUN | IORING_SETUP_R_DISABLED | IORING_SETUP_CQSIZE;
  params.cq_entries = kCompletionEntries;
  const int error = io_uring_queue_init_params(kSubmissionEntries, &ring_, &params);
  if (error < 0) return error;
  is_ready_ = true;
  // Waiting with a timeout without a submission of its own.
  return (params.features & IORING_FEAT_EXT_ARG) != 0 ? 0 : -ENOSYS;
}

void UringPoller::enable() {
  is_enabled_ = true;
  // liburing 2.3 declares io_uring_enable_rings() but its shared library does not export it.
  HEADRACE_CHECK(::syscall(__NR_io_uring_register, ring_.ring_fd, IORING_REGISTER_ENABLE_RINGS,
                           nullptr, 0) == 0);
  static_cast<void>(io_uring_register_ring_fd(&ring_));  // a little faster; may fail
  arm_wake();
}

io_uring_sqe* UringPoller::next_entry() {
  if (!is_enabled_) enable();
  io_uring_sqe* entry = io_uring_get_sqe(&ring_);
  if (entry == nullptr) {
    io_uring_submit(&ring_);
    entry = io_uring_get_sqe(&ring_);
    HEADRACE_CHECK(entry != nullptr);
  }
  return entry;
}

void UringPoller::arm_wake() {
  io_uring_sqe* entry = next_entry();
  io_uring_prep_read(entry, wake_.get(), &wake_count_, sizeof(wake_count_), 0);
  entry->user_data = kWakeData;
}

std::optional<std::int64_t> UringPoller::connect(PollSocket& socket, const sockaddr* address,
                                                 socklen_t address_bytes) {
  auto& out = socket.out_;
  HEADRACE_DCHECK(!out.is_pending && address_bytes <= sizeof(out.address));
  std::memcpy(&out.address, address, address_bytes);
  out.address_bytes = address_bytes;
  out.op = PollOp::kConnect;
  out.is_pending = true;
  out.is_cancelled = false;
  io_uring_sqe* entry = next_entry();
  io_uring_prep_connect(entry, socket.fd_, reinterpret_cast<sockaddr*>(&out.address),
                        address_bytes);
  entry->user_data = data_of(socket, PollOp::kConnect);
  return std::nullopt;
}

std::optional<std::int64_t> UringPoller::receive(PollSocket& socket, std::span<std::byte> buffer,
                                                 ReceiveMode mode) {
  HEADRACE_DCHECK(!socket.is_receiving() && !buffer.empty());
  socket.in_ = {buffer.data(), buffer.size(), 0, mode, true, false};
  arm_receive(socket);
  return std::nullopt;
}

void UringPoller::arm_receive(PollSocket& socket) {
  auto& in = socket.in_;
  const std::size_t want_bytes = std::min(in.size_bytes - in.done_bytes, kMaxOperationBytes);
  io_uring_sqe* entry = next_entry();
  io_uring_prep_recv(entry, socket.fd_, in.data + in.done_bytes, want_bytes,
                     in.mode == ReceiveMode::kAll ? MSG_WAITALL : 0);
  if (in.mode == ReceiveMode::kSomeLater) entry->ioprio |= IORING_RECVSEND_POLL_FIRST;
  entry->user_data = data_of(socket, PollOp::kReceive);
}

std::optional<std::int64_t> UringPoller::send(PollSocket& socket, std::span<const std::byte> head,
                                              std::span<const std::byte> body) {
  auto& out = socket.out_;
  HEADRACE_DCHECK(!out.is_pending);
  out.op = PollOp::kSend;
  out.pieces = {detail::to_iovec(head), detail::to_iovec(body)};
  out.done_bytes = 0;
  // A request fits into the socket buffer. Sent here it costs one system call; sent by the ring it
  // would cost a completion that ends a poll() with nothing to do.
  while (out.pieces[0].iov_len + out.pieces[1].iov_len > 0) {
    out.message = {};
    out.message.msg_iov = out.pieces.data();
    out.message.msg_iovlen = out.pieces[1].iov_len > 0 ? 2 : 1;
    const ssize_t n = ::sendmsg(socket.fd_, &out.message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
      out.is_pending = true;
      out.is_cancelled = false;
      arm_send(socket);
      return std::nullopt;
    }
    if (n < 0) return -errno;
    out.done_bytes += static_cast<std::size_t>(n);
    detail::drop_front(out.pieces, static_cast<std::size_t>(n));
  }
  return static_cast<std::int64_t>(out.done_bytes);
}

void UringPoller::arm_send(PollSocket& socket) {
  auto& out = socket.out_;
  out.message = {};
  out.message.msg_iov = out.pieces.data();
  out.message.msg_iovlen = 2;
  io_uring_sqe* entry = next_entry();
  io_uring_prep_sendmsg(entry, socket.fd_, &out.message, MSG_NOSIGNAL | MSG_WAITALL);
  entry->user_data = data_of(socket, PollOp::kSend);
}

void UringPoller::cancel_one(std::uint64_t user_data) {
  io_uring_sqe* entry = next_entry();
  io_uring_prep_cancel64(entry, user_data, 0);
  entry->user_data = kIgnoreData;
}

void UringPoller::cancel(PollSocket& socket) {
  if (socket.in_.is_pending && !socket.in_.is_cancelled) {
    socket.in_.is_cancelled = true;
    cancel_one(data_of(socket, PollOp::kReceive));
  }
  if (socket.out_.is_pending && !socket.out_.is_cancelled) {
    socket.out_.is_cancelled = true;
    cancel_one(data_of(socket, socket.out_.op));
  }
}

bool UringPoller::finish_receive(PollSocket& socket, std::int64_t& result) {
  auto& in = socket.in_;
  if (result == -EINTR || result == -EAGAIN) return false;
  if (result < 0) return true;
  in.done_bytes += static_cast<std::size_t>(result);
  const bool is_end = result == 0;
  result = static_cast<std::int64_t>(in.done_bytes);
  return is_end || in.mode != ReceiveMode::kAll || in.done_bytes == in.size_bytes;
}

bool UringPoller::finish_send(PollSocket& socket, std::int64_t& result) {
  auto& out = socket.out_;
  if (result == -EINTR || result == -EAGAIN) return false;
  if (result < 0) return true;
  out.done_bytes += static_cast<std::size_t>(result);
  detail::drop_front(out.pieces, static_cast<std::size_t>(result));
  result = static_cast<std::int64_t>(out.done_bytes);
  return out.pieces[0].iov_len + out.pieces[1].iov_len == 0;
}

/// Whether the operation is over; otherwise its next piece has been started.
bool UringPoller::finish(PollSocket& socket, PollOp op, std::int64_t result, PollEvent& event) {
  bool is_over = true;
  if (op == PollOp::kReceive) {
    is_over = finish_receive(socket, result);
    if (!is_over && !socket.in_.is_cancelled) arm_receive(socket);
  } else if (op == PollOp::kSend) {
    is_over = finish_send(socket, result);
    if (!is_over && !socket.out_.is_cancelled) arm_send(socket);
  }
  if (!is_over) {
    const bool is_cancelled =
        op == PollOp::kReceive ? socket.in_.is_cancelled : socket.out_.is_cancelled;
    if (!is_cancelled) return false;
    result = -ECANCELED;  // between two pieces, where the kernel had nothing to cancel
  }
  (op == PollOp::kReceive ? socket.in_.is_pending : socket.out_.is_pending) = false;
  event = {&socket, op, result};
  return true;
}

std::size_t UringPoller::poll(std::span<PollEvent> out, std::chrono::nanoseconds timeout) {
  if (!is_enabled_) enable();
  __kernel_timespec limit{};
  limit.tv_sec = timeout.count() / 1'000'000'000;
  limit.tv_nsec = timeout.count() % 1'000'000'000;
  io_uring_cqe* first = nullptr;
  static_cast<void>(io_uring_submit_and_wait_timeout(
      &ring_, &first, 1, timeout.count() < 0 ? nullptr : &limit, nullptr));
  std::size_t count = 0;
  unsigned seen = 0;
  unsigned head = 0;
  io_uring_cqe* entry = nullptr;
  io_uring_for_each_cqe(&ring_, head, entry) {
    if (count == out.size()) break;
    ++seen;
    if (entry->user_data == kIgnoreData) continue;
    if (entry->user_data == kWakeData) {
      arm_wake();
      continue;
    }
    auto* socket = reinterpret_cast<PollSocket*>(entry->user_data & ~kOpMask);
    const auto op = static_cast<PollOp>(entry->user_data & kOpMask);
    if (finish(*socket, op, entry->res, out[count])) ++count;
  }
  io_uring_cq_advance(&ring_, seen);
  return count;
}

Result<std::unique_ptr<Poller>> create_uring_poller() {
  EventFd wake(0);
  if (!wake) return Status(Code::kExhausted, std::string("eventfd: ") + std::strerror(errno));
  auto poller = std::make_unique<UringPoller>(std::move(wake));
  const int error = poller->init();
  if (error == 0) return std::unique_ptr<Poller>(std::move(poller));
  const bool is_exhausted = error == -ENOMEM || error == -EMFILE || error == -ENFILE;
  return Status(is_exhausted ? Code::kExhausted : Code::kUnsupported,
                std::string("io_uring is not available: ") + std::strerror(-error));
}

}  // namespace headrace
