// Edge-triggered, with one registration for a connection's whole life: no epoll_ctl() a request.
// The price is that readiness must be remembered (ServerConnection does) and that a connection
// which still has work may not wait for an event: it says kYield and comes back from ready_.
//
// Invariants:
// - A slot is in slots_ until it is closed, then in dead_ until the end of the turn: events that
//   were fetched already, and ready_, may still name it. Its descriptor is closed at once.
// - A slot has at most one timer, and its iterator is good as long as has_timer is set.
// - data.ptr tells three things apart: nullptr is the eventfd, `this` the listening sockets,
//   anything else a slot.
// - Sockets change threads only through the mailbox, and only before their first byte was read.
#include "sim/server_loop.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

namespace headrace::sim {
namespace {

// Reads of bodies; 256 KiB keeps system calls below 1 % of a PUT's work and fits the level-2 cache.
constexpr std::size_t kScratchBytes = 256 << 10;
// Out of descriptors: accepting again at once would spin.
constexpr std::chrono::milliseconds kAcceptPause{20};

bool is_loopback(const sockaddr_storage& address) noexcept {
  if (address.ss_family == AF_INET) {
    sockaddr_in v4;
    std::memcpy(&v4, &address, sizeof v4);
    return (ntohl(v4.sin_addr.s_addr) >> 24) == 127;
  }
  if (address.ss_family != AF_INET6) return false;
  sockaddr_in6 v6;
  std::memcpy(&v6, &address, sizeof v6);
  if (IN6_IS_ADDR_LOOPBACK(&v6.sin6_addr)) return true;
  return IN6_IS_ADDR_V4MAPPED(&v6.sin6_addr) && v6.sin6_addr.s6_addr[12] == 127;
}

}  // namespace

Status AddressBook::set_state(std::size_t index, SimAddress::State state) {
  const MutexLock lock(mutex_);
  return addresses_[index].set_state(state);
}

std::vector<std::string> AddressBook::names() const {
  const MutexLock lock(mutex_);
  std::vector<std::string> names;
  for (const Address& address : addresses_) {
    const bool is_v6 = address.host().find(':') != std::string::npos;
    names.push_back((is_v6 ? "[" + address.host() + "]" : address.host()) + ":" +
                    std::to_string(address.port()));
  }
  return names;
}

void AddressBook::close() {
  const MutexLock lock(mutex_);
  for (Address& address : addresses_) (void)address.set_state(SimAddress::State::kRefuse);
}

// The lock is held across accept4(), which does not block: a socket that closes meanwhile could be
// another by then.
AcceptedSocket AddressBook::accept() {
  AcceptedSocket out;
  int error = EAGAIN;
  const MutexLock lock(mutex_);
  for (std::size_t i = 0; i < addresses_.size(); ++i) {
    if (addresses_[i].listener() < 0) continue;
    sockaddr_storage peer{};
    socklen_t length = sizeof peer;
    out.fd = Fd(::accept4(addresses_[i].listener(), reinterpret_cast<sockaddr*>(&peer), &length,
                          SOCK_NONBLOCK | SOCK_CLOEXEC));
    out.peer = {is_loopback(peer), i};
    if (out.fd) return out;
    if (errno != EAGAIN) error = errno;
  }
  errno = error;
  return out;
}

bool AddressBook::watch(int epoll, void* tag) {
  const MutexLock lock(mutex_);
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.ptr = tag;
  bool is_complete = true;
  for (const Address& address : addresses_) {
    if (address.listener() < 0) continue;
    is_complete &= ::epoll_ctl(epoll, EPOLL_CTL_ADD, address.listener(), &event) == 0;
  }
  return is_complete;
}

void AddressBook::unwatch(int epoll) {
  const MutexLock lock(mutex_);
  for (const Address& address : addresses_) {
    if (address.listener() >= 0) ::epoll_ctl(epoll, EPOLL_CTL_DEL, address.listener(), nullptr);
  }
}

Result<std::unique_ptr<ServerLoop>> ServerLoop::create(SharedState& shared, ThreadStats& stats) {
  Fd epoll(::epoll_create1(EPOLL_CLOEXEC));
  EventFd wake;
  epoll_event event{};
  event.events = EPOLLIN | EPOLLET;
  event.data.ptr = nullptr;
  if (!epoll || !wake || ::epoll_ctl(epoll.get(), EPOLL_CTL_ADD, wake.get(), &event) != 0) {
    return Status(Code::kUnavailable,
                  std::string("simulator: cannot create an event loop: ") + std::strerror(errno));
  }
  return std::unique_ptr<ServerLoop>(
      new ServerLoop(shared, stats, std::move(epoll), std::move(wake)));
}

ServerLoop::ServerLoop(SharedState& shared, ThreadStats& stats, Fd epoll, EventFd wake)
    : shared_(shared),
      stats_(stats),
      service_(shared, stats),
      epoll_(std::move(epoll)),
      wake_(std::move(wake)),
      scratch_(kScratchBytes) {}

ServerLoop::~ServerLoop() = default;

void ServerLoop::request_stop() {
  is_stopping_.store(true, std::memory_order_release);
  wake_.signal();
}

void ServerLoop::poke() {
  is_poked_.store(true, std::memory_order_release);
  wake_.signal();
}

void ServerLoop::hand_over(AcceptedSocket socket) {
  {
    const MutexLock lock(mailbox_mutex_);
    // Under the lock with which run() empties the mailbox at its end: no socket can stay behind in
    // it.
    if (is_stopping_.load(std::memory_order_acquire)) return;
    mailbox_.push_back(std::move(socket));
  }
  wake_.signal();
}

void ServerLoop::accept_from(AddressBook& addresses, std::vector<ServerLoop*> loops) {
  addresses_ = &addresses;
  loops_ = std::move(loops);
  listen_again_ = TimePoint::min();
}

void ServerLoop::add(AcceptedSocket socket) {
  const int fd = socket.fd.get();
  const int on = 1;
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  auto slot = std::make_unique<Slot>();
  slot->connection = std::make_unique<ServerConnection>(
      Wire(std::move(socket.fd), shared_.tls ? shared_.tls->get() : nullptr), socket.peer, service_,
      std::span<char>(scratch_));
  epoll_event event{};
  event.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET;
  event.data.ptr = slot.get();
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) return;  // closes it
  stats_.record_connection();
  slots_[fd] = std::move(slot);
}

void ServerLoop::accept_some(TimePoint now) {
  while (true) {
    AcceptedSocket accepted = addresses_->accept();
    if (!accepted.fd) {
      if (errno == EINTR || errno == ECONNABORTED) continue;
      if (errno != EAGAIN) {
        addresses_->unwatch(epoll_.get());
        is_listening_ = false;
        listen_again_ = now + kAcceptPause;
      }
      return;
    }
    ServerLoop* loop = loops_[next_loop_++ % loops_.size()];
    loop == this ? add(std::move(accepted)) : loop->hand_over(std::move(accepted));
  }
}

void ServerLoop::take_mailbox() {
  std::uint64_t count = 0;
  // First the counter, then the mailbox: what is put there in between wakes the loop once more.
  (void)!::read(wake_.get(), &count, sizeof count);
  std::vector<AcceptedSocket> sockets;
  {
    const MutexLock lock(mailbox_mutex_);
    sockets.swap(mailbox_);
  }
  for (AcceptedSocket& socket : sockets) add(std::move(socket));
  if (is_poked_.exchange(false, std::memory_order_acquire)) {
    const TimePoint now = shared_.clock.now();
    is_listening_ = false;
    if (addresses_ != nullptr) listen_again(now);
    drive_all(now);
  }
}

void ServerLoop::listen_again(TimePoint now) {
  addresses_->unwatch(epoll_.get());
  is_listening_ = addresses_->watch(epoll_.get(), this);
  listen_again_ = is_listening_ ? TimePoint::max() : now + kAcceptPause;
}

void ServerLoop::drive_all(TimePoint now) {
  // A copy, since drive() may close slots and so change the map.
  std::vector<Slot*> slots;
  for (const auto& [fd, slot] : slots_) slots.push_back(slot.get());
  for (Slot* slot : slots) drive(*slot, now);
}

void ServerLoop::close(Slot& slot) {
  if (slot.has_timer) timers_.erase(slot.timer);
  slot.has_timer = false;
  slot.is_dead = true;
  const auto found = slots_.find(slot.connection->fd());
  dead_.push_back(std::move(found->second));
  slots_.erase(found);
  slot.connection.reset();  // closes the socket, which leaves the epoll set with it
}

void ServerLoop::drive(Slot& slot, TimePoint now) {
  if (slot.is_dead) return;
  const ServerConnection::Next next = slot.connection->drive(now);
  if (next == ServerConnection::Next::kClose) return close(slot);
  if (next == ServerConnection::Next::kYield && !slot.is_ready) {
    slot.is_ready = true;
    ready_.push_back(&slot);
  }
  const TimePoint wake_at = slot.connection->wake_at();
  if (slot.has_timer) {
    if (slot.timer->first == wake_at) return;
    timers_.erase(slot.timer);
    slot.has_timer = false;
  }
  if (wake_at != TimePoint::max()) {
    slot.timer = timers_.emplace(wake_at, &slot);
    slot.has_timer = true;
  }
}

void ServerLoop::run_timers(TimePoint now) {
  while (!timers_.empty() && timers_.begin()->first <= now) {
    Slot* slot = timers_.begin()->second;
    timers_.erase(timers_.begin());
    slot->has_timer = false;
    drive(*slot, now);
  }
}

void ServerLoop::run_ready(TimePoint now) {
  std::vector<Slot*> turn;
  // Those that yield again wait for the next turn, behind events and timers.
  turn.swap(ready_);
  for (Slot* slot : turn) {
    slot->is_ready = false;
    drive(*slot, now);
  }
}

int ServerLoop::timeout_ms(TimePoint now) const {
  if (!ready_.empty()) return 0;
  TimePoint next = listen_again_;
  if (!timers_.empty()) next = std::min(next, timers_.begin()->first);
  if (next == TimePoint::max()) return -1;
  if (next <= now) return 0;
  // Rounded up: waking before the time would spin until it comes.
  const auto wait = std::chrono::ceil<std::chrono::milliseconds>(next - now);
  return static_cast<int>(std::min<std::int64_t>(wait.count(), 60'000));
}

void ServerLoop::run() {
  std::array<epoll_event, 256> events;
  while (!is_stopping_.load(std::memory_order_acquire)) {
    TimePoint now = shared_.clock.now();
    if (addresses_ != nullptr && !is_listening_ && now >= listen_again_) listen_again(now);
    const int count =
        ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), timeout_ms(now));
    now = shared_.clock.now();
    for (int i = 0; i < count; ++i) {
      const epoll_event& event = events[static_cast<std::size_t>(i)];
      if (event.data.ptr == nullptr) {
        take_mailbox();
      } else if (event.data.ptr == this) {
        accept_some(now);
      } else {
        Slot& slot = *static_cast<Slot*>(event.data.ptr);
        if (slot.is_dead) continue;
        slot.connection->on_events(event.events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR),
                                   event.events & (EPOLLOUT | EPOLLHUP | EPOLLERR));
        drive(slot, now);
      }
    }
    run_timers(now);
    run_ready(now);
    // Dead slots may still be named by ready_.
    if (!dead_.empty()) {
      std::erase_if(ready_, [](const Slot* slot) { return slot->is_dead; });
      dead_.clear();
    }
  }
  ready_.clear();
  timers_.clear();
  slots_.clear();
  const MutexLock lock(mailbox_mutex_);
  mailbox_.clear();
}

}  // namespace headrace::sim
