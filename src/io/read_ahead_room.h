#pragma once
/// \file
/// ReadAheadRoom: how much memory may be read ahead into, so that reading fills the way to the
/// store and touches no more memory than that takes. A closed loop without I/O, clocks or threads.
///
/// Law (docs/design/0039): what is read ahead grows while the reader waits, this room is what holds
/// reads back, and the store takes at once what it is given; and a step that brought no more, by
/// the bytes a second that came and by the time that each request took, is taken back. How many
/// requests a store takes is found by its own control (docs/design/0012); requests beyond that only
/// wait there.
///
/// Place: a loader asks one before each read, for as long as it lives, so that an epoch begins with
/// what the one before has found; all other readers ask through ReadBudget. Threads: its owner's.
#include <cstdint>

#include "headrace/clock.h"
#include "headrace/store.h"

namespace headrace::io {

/// Of all reads that have ended, since the beginning.
struct Arrivals {
  std::uint64_t bytes = 0;
  /// Of these, the bytes of requests that the store held back for a quarter of their time or more
  /// before it sent them.
  std::uint64_t held_bytes = 0;
  std::uint64_t requests = 0;
  /// Sum of the logarithms of the microseconds from the sending of each to its last byte: the mean
  /// of these forgives the one request in a thousand that takes a second.
  double log_us = 0;

  /// A read of so many bytes has ended. `was_held`: its owner has held it back as well.
  void add(const Completion& completion, std::uint64_t length_bytes, bool was_held) noexcept;
};

class ReadAheadRoom {
 public:
  /// A run begins. `fixed_bytes` stay resident; what is read ahead of them begins with
  /// `first_bytes - fixed_bytes`, or with what an earlier run has found to be better, and grows to
  /// `most_bytes - fixed_bytes`. \pre fixed <= first <= most.
  void begin(std::uint64_t fixed_bytes, std::uint64_t first_bytes, std::uint64_t most_bytes);

  /// For what stays resident and what is read ahead.
  std::uint64_t bytes() const noexcept { return fixed_bytes_ + ahead_bytes_; }
  std::uint64_t ahead_bytes() const noexcept { return ahead_bytes_; }
  /// The memory limit is what bounds it.
  bool is_all() const noexcept { return ahead_bytes_ == most_ahead_bytes_; }
  /// It is, and more of it would bring more: the last step, which took all, did.
  bool is_short() const noexcept { return is_all() && is_last_step_good_; }
  /// A read was put off because of bytes().
  void on_refused() noexcept { is_refused_ = true; }
  /// The reader has nothing to go on with until reads end.
  void on_wait() noexcept { is_waited_for_ = true; }
  /// Called as often as reads begin.
  void look(const Arrivals& arrivals, TimePoint now) noexcept;

 private:
  enum class Phase : std::uint8_t {
    kFill,     ///< What was asked for with another room is still arriving.
    kMeasure,  ///< Bytes a second of one room full.
    kRest,     ///< The last step was taken back.
  };
  /// What a look has found.
  struct Found {
    double bytes_per_s = 0;
    double log_us = 0;  ///< Mean of the requests.
    bool is_held = false;
  };
  bool was_of_use(const Found& found) const noexcept;
  void judge(const Found& found) noexcept;
  void grow(const Found& found) noexcept;

  std::uint64_t fixed_bytes_ = 0;
  std::uint64_t most_ahead_bytes_ = 0;
  std::uint64_t ahead_bytes_ = 0;
  std::uint64_t found_bytes_ = 0;    ///< What proved to be of use.
  std::uint64_t touched_bytes_ = 0;  ///< The largest step so far.
  Phase phase_ = Phase::kFill;
  std::uint64_t smaller_bytes_ = 0;  ///< Before the last step; 0: none is being judged.
  Found smaller_;
  bool is_second_look_ = false;
  bool is_last_step_good_ = false;
  bool is_near_ = false;    ///< A step was of no use before: from here on by small ones.
  std::uint32_t rest_ = 0;  ///< Rooms full; how many of them are left:
  std::uint32_t rest_left_ = 0;
  // Since the last look:
  Arrivals from_;
  TimePoint since_{};
  bool is_refused_ = false;
  bool is_waited_for_ = false;
};

}  // namespace headrace::io
