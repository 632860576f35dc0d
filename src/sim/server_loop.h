#pragma once
/// \file
/// One server thread: an epoll loop over its connections and their timers.
///
/// Threads: create() and the destructor anywhere; run() on the thread; hand_over() and
/// request_stop() and poke() from any thread.
#include <atomic>
#include <map>
#include <memory>
#include <unordered_map>
#include <vector>

#include "base/event_fd.h"
#include "base/fd.h"
#include "base/mutex.h"
#include "sim/address.h"
#include "sim/server_connection.h"

namespace headrace::sim {

struct AcceptedSocket {
  Fd fd;
  Peer peer;
};

/// The addresses of a server. The accepting loop reads their sockets, any thread opens and closes
/// them.
class AddressBook {
 public:
  explicit AddressBook(std::vector<Address> addresses) : addresses_(std::move(addresses)) {}
  Status set_state(std::size_t index, SimAddress::State state) HEADRACE_EXCLUDES(mutex_);
  std::vector<std::string> names() const HEADRACE_EXCLUDES(mutex_);
  void close() HEADRACE_EXCLUDES(mutex_);
  /// Accepts one connection from any of them; an empty descriptor with errno when none waits.
  AcceptedSocket accept() HEADRACE_EXCLUDES(mutex_);
  /// Puts the sockets into or out of an epoll set, with `tag`. False when one would not go in.
  bool watch(int epoll, void* tag) HEADRACE_EXCLUDES(mutex_);
  void unwatch(int epoll) HEADRACE_EXCLUDES(mutex_);

 private:
  mutable Mutex mutex_;
  std::vector<Address> addresses_ HEADRACE_GUARDED_BY(mutex_);
};

class ServerLoop {
 public:
  /// Errors: kUnavailable (no more descriptors).
  static Result<std::unique_ptr<ServerLoop>> create(SharedState& shared, ThreadStats& stats);
  ~ServerLoop();

  /// The loop that accepts deals the connections out to all, itself included. \pre before run()
  void accept_from(AddressBook& addresses, std::vector<ServerLoop*> loops);
  void run();
  void hand_over(AcceptedSocket socket) HEADRACE_EXCLUDES(mailbox_mutex_);
  void request_stop();
  /// Looks again at the clock, at the behaviour and at the listening sockets.
  void poke();

 private:
  struct Slot {
    std::unique_ptr<ServerConnection> connection;
    std::multimap<TimePoint, Slot*>::iterator timer;
    bool has_timer = false;
    bool is_ready = false;  // in ready_
    bool is_dead = false;   // closed in this turn; events of it may still be at hand
  };
  ServerLoop(SharedState& shared, ThreadStats& stats, Fd epoll, EventFd wake);
  void add(AcceptedSocket socket);
  void accept_some(TimePoint now);
  void take_mailbox();
  void drive_all(TimePoint now);
  void listen_again(TimePoint now);
  void drive(Slot& slot, TimePoint now);
  void close(Slot& slot);
  void run_timers(TimePoint now);
  void run_ready(TimePoint now);
  int timeout_ms(TimePoint now) const;

  SharedState& shared_;
  ThreadStats& stats_;
  Service service_;
  const Fd epoll_;
  const EventFd wake_;
  std::vector<char> scratch_;
  std::atomic<bool> is_stopping_{false};  // released by request_stop(), acquired by run()

  std::atomic<bool> is_poked_{false};  // released by poke(), acquired by take_mailbox()

  AddressBook* addresses_ = nullptr;  // of the loop that accepts
  bool is_listening_ = false;         // in the epoll set
  TimePoint listen_again_ = TimePoint::max();
  std::vector<ServerLoop*> loops_;
  std::size_t next_loop_ = 0;

  std::unordered_map<int, std::unique_ptr<Slot>> slots_;  // by descriptor
  std::multimap<TimePoint, Slot*> timers_;
  std::vector<Slot*> ready_;
  std::vector<std::unique_ptr<Slot>> dead_;

  Mutex mailbox_mutex_;
  std::vector<AcceptedSocket> mailbox_ HEADRACE_GUARDED_BY(mailbox_mutex_);
};

}  // namespace headrace::sim
