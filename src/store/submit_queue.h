#pragma once
/// \file
/// SubmitQueue: requests on their way into a store handle, and the one answer to back-pressure.
/// Whoever has requests for a store puts them here; nobody else calls submit() and wait() in a
/// loop.
///
/// A store may take fewer requests than it is offered. What it does not take stays here and is
/// offered again after each completion, and every millisecond while there are none.
///
/// Place: over any Store, below all that reads or writes through one. The handle must outlive the
/// queue and belongs to it alone.
///
/// Threads: one owner; the handle's wake() from any thread ends a wait().
#include <algorithm>
#include <chrono>
#include <span>
#include <stop_token>
#include <utility>
#include <vector>

#include "headrace/clock.h"
#include "headrace/store.h"

namespace headrace {

/// How soon a store that has refused requests is asked again.
inline constexpr std::chrono::milliseconds kRefusedPause{1};
/// A store that takes nothing for this long, with nothing in flight, is taken for broken.
inline constexpr std::chrono::seconds kRefusedLimit{60};

/// Requests that a store has not taken yet, oldest first. SubmitQueue has one; by itself for
/// whoever submits in one thread and waits in another.
class Outbox {
 public:
  void push(Request request) { requests_.push_back(std::move(request)); }
  bool is_empty() const noexcept { return requests_.empty(); }
  std::size_t size() const noexcept { return requests_.size(); }
  /// Offers all to `handle`; returns how many it took.
  std::size_t flush(Store& handle);
  /// Takes out those that `matches`.
  template <class Matches>
  std::vector<Request> take_back(Matches matches) {
    const auto kept = std::stable_partition(requests_.begin(), requests_.end(),
                                            [&](const Request& r) { return !matches(r); });
    std::vector<Request> taken(std::make_move_iterator(kept),
                               std::make_move_iterator(requests_.end()));
    requests_.erase(kept, requests_.end());
    return taken;
  }
  std::vector<Request> take_back_all() { return std::exchange(requests_, {}); }
  /// When to look again, for a wait() that would last until `until`.
  TimePoint retry_at(TimePoint until) const;

 private:
  std::vector<Request> requests_;
};

class SubmitQueue {
 public:
  /// `refused_limit`: how long a store may take nothing, with nothing in flight.
  explicit SubmitQueue(Store& handle, std::chrono::milliseconds refused_limit = kRefusedLimit)
      : handle_(handle), refused_limit_(refused_limit) {}

  /// Queues a request. Nothing is offered before flush() or wait().
  void push(Request request) { outbox_.push(std::move(request)); }
  void flush() { in_flight_ += outbox_.flush(handle_); }

  std::size_t unsent() const noexcept { return outbox_.size(); }
  std::size_t in_flight() const noexcept { return in_flight_; }
  std::size_t pending() const noexcept { return outbox_.size() + in_flight_; }

  /// Takes queued requests back that the store does not have yet.
  template <class Matches>
  std::vector<Request> take_back(Matches matches) {
    return outbox_.take_back(std::move(matches));
  }
  std::vector<Request> take_back_all() { return outbox_.take_back_all(); }

  /// Fills `out` with completions and returns how many; 0 at `until` or after a wake(). Offers what
  /// is queued before and after. Errors: kCancelled (`stop`), kExhausted (the limit for
  /// refusals is over).
  Result<std::size_t> wait(std::span<Completion> out, TimePoint until, std::stop_token stop = {});

  /// Takes back what is queued and takes every completion, without looking at it. \pre the handle
  /// was stopped, or what is in flight may last as long as its deadline.
  void drain();

 private:
  Store& handle_;
  const std::chrono::milliseconds refused_limit_;
  Outbox outbox_;
  std::size_t in_flight_ = 0;
  TimePoint refused_since_{};  ///< Since then nothing is in flight and nothing is taken.
};

/// Runs one request on a handle with nothing else in flight. Errors, in Completion::status: those
/// of the request, kCancelled (`stop`), kExhausted. When it returns because of `stop`, the request
/// may still be under way: the handle must be destroyed before what the request points to.
Completion run_request(Store& handle, Request request, const std::stop_token& stop);

}  // namespace headrace
