#pragma once
/// \file
/// Rest: leaves a place alone that failed, and lets one request try it when the pause is over. The
/// pause doubles with each failure after the first. Pure; the owner locks.
#include <algorithm>
#include <chrono>

#include "headrace/clock.h"

namespace headrace::tier {

class Rest {
 public:
  static constexpr std::chrono::milliseconds kFirst{1000}, kLongest{60'000};

  /// Whether a request may be made now. After a pause only one may, until its end is told.
  bool may_try(TimePoint now) noexcept {
    if (pause_ == pause_.zero()) return true;
    if (now < until_ || is_trying_) return false;
    is_trying_ = true;
    return true;
  }
  void note_success() noexcept {
    pause_ = pause_.zero();
    is_trying_ = false;
  }
  /// What fails while it rests began before: that says nothing new.
  void note_failure(TimePoint now) noexcept {
    if (pause_ != pause_.zero() && now < until_) return;
    pause_ = pause_ == pause_.zero() ? kFirst : std::min(2 * pause_, kLongest);
    until_ = now + pause_;
    is_trying_ = false;
  }
  /// What may_try() allowed was not done after all.
  void give_back() noexcept { is_trying_ = false; }

 private:
  std::chrono::milliseconds pause_{0};
  TimePoint until_{};
  bool is_trying_ = false;
};

}  // namespace headrace::tier
