#pragma once
/// \file
/// How other threads reach a reactor: letters pushed from any thread, taken by the owner in order,
/// and a bell that wakes the owner only when it sleeps and wants to be woken.
///
/// Bounded without a limit of its own: letters are embedded in objects of which there are boundedly
/// many, and each is in at most one mailbox at a time.
///
/// Threads: push() and should_wake() from any thread; the rest from the owner.
#include <atomic>
#include <cstdint>

#include "headrace/clock.h"

namespace headrace {

/// Base of what can be sent. `kind` tells the receiver what it is part of.
struct Letter {
  explicit Letter(std::uint8_t kind_in) noexcept : kind(kind_in) {}
  Letter* next = nullptr;
  const std::uint8_t kind;
};

class Mailbox {
 public:
  /// The letter belongs to the mailbox until it is taken.
  void push(Letter& letter) noexcept {
    Letter* top = top_.load(std::memory_order_relaxed);
    do {
      letter.next = top;
      // Release pairs with the acquire in take_all(). The order against should_wake() needs
      // seq_cst, see there.
    } while (!top_.compare_exchange_weak(top, &letter, std::memory_order_seq_cst,
                                         std::memory_order_relaxed));
  }

  /// All letters, first pushed first, linked by `next`; nullptr when empty.
  Letter* take_all() noexcept {
    if (top_.load(std::memory_order_relaxed) == nullptr) return nullptr;
    Letter* newest = top_.exchange(nullptr, std::memory_order_acquire);
    Letter* oldest = nullptr;
    while (newest != nullptr) {
      Letter* older = newest->next;
      newest->next = oldest;
      oldest = newest;
      newest = older;
    }
    return oldest;
  }

  /// The owner is about to wait until `until`. `wants_work`: any letter is worth waking up for;
  /// otherwise only those that must be looked at before `until`. False when letters are there
  /// already: take them instead of waiting.
  bool begin_wait(bool wants_work, TimePoint until) noexcept {
    // Either push() comes before the load of top_ here, and we stay awake, or wake_before_ was
    // stored before the pusher's should_wake() looks at it: both sides store first and then load,
    // in the single order of seq_cst.
    wake_before_.store(wants_work ? kAny : until.time_since_epoch().count(),
                       std::memory_order_seq_cst);
    if (top_.load(std::memory_order_seq_cst) == nullptr) return true;
    end_wait();
    return false;
  }
  void end_wait() noexcept { wake_before_.store(kAwake, std::memory_order_relaxed); }

  /// After push(): whether the caller must wake the owner's poller. True for one caller per wait.
  /// `needed_at`: when the letter must be looked at at the latest; TimePoint::min() for urgent
  /// ones.
  bool should_wake(TimePoint needed_at) noexcept {
    std::int64_t wake_before = wake_before_.load(std::memory_order_seq_cst);
    if (wake_before == kAwake) return false;
    if (wake_before != kAny && needed_at.time_since_epoch().count() >= wake_before) return false;
    return wake_before_.compare_exchange_strong(wake_before, kAwake, std::memory_order_relaxed);
  }

 private:
  static constexpr std::int64_t kAwake = INT64_MIN;  // no letter is earlier than that
  static constexpr std::int64_t kAny = INT64_MAX;
  std::atomic<Letter*> top_{nullptr};
  std::atomic<std::int64_t> wake_before_{kAwake};
};

}  // namespace headrace
