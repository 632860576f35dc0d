#include "copy/part_window.h"

#include <algorithm>
#include <utility>

namespace headrace::copy_detail {
namespace {

constexpr double kWorthIt = 1.25;
// Room that a quick part makes besides its own: the window triples in the time of a part.
constexpr std::size_t kGrowth = 2;
// More is never under way: the ceiling of requests of a copy is lower.
constexpr std::size_t kMost = 4096;

}  // namespace

std::size_t PartWindow::take(std::size_t most) {
  MutexLock lock(mutex_);
  const std::size_t count = std::min(most, size_ > used_ ? size_ - used_ : 0);
  used_ += count;
  return count;
}

void PartWindow::give_back(std::size_t count) {
  MutexLock lock(mutex_);
  used_ -= std::min(count, used_);
}

bool PartWindow::is_full() {
  MutexLock lock(mutex_);
  return used_ >= size_;
}

void PartWindow::see_arrived(std::uint64_t bytes, std::uint64_t part_bytes, TimePoint now) {
  MutexLock lock(mutex_);
  if (seen_at_ != TimePoint{} && bytes > seen_bytes_) {
    const std::uint64_t came = bytes - seen_bytes_;
    if (came < kTellingBytes || now - seen_at_ < kTellingTime) return;
    using Seconds = std::chrono::duration<double>;
    const double parts = static_cast<double>(came) / Seconds(now - seen_at_).count() *
                         Seconds(kSoon).count() / static_cast<double>(part_bytes);
    size_ = std::max(size_, static_cast<std::size_t>(std::min<double>(parts, kMost)));
    is_arriving_ = true;
  } else if (is_arriving_) {
    return;  // What piles up meanwhile would come at once, and not tell how fast the link is.
  }
  seen_bytes_ = bytes;  // Without the time in which the first byte of all was waited for.
  seen_at_ = now;
}

std::size_t PartWindow::size() {
  MutexLock lock(mutex_);
  return size_;
}

void PartWindow::end_part(std::uint64_t bytes, TimePoint began, TimePoint now) {
  MutexLock lock(mutex_);
  used_ -= std::min<std::size_t>(1, used_);
  if (now - began < kSoon) {
    size_ = std::min(size_ + kGrowth, kMost);
    slower_size_ = rest_parts_ = 0;
    begin_round(now);
    return;
  }
  if (rest_parts_ > 0) {
    if (--rest_parts_ == 0) begin_round(now);
    return;
  }
  if (round_began_ == TimePoint{}) round_began_ = began;
  ++round_parts_;
  round_bytes_ += bytes;
  if (round_parts_ >= size_) end_round(now);
}

void PartWindow::end_round(TimePoint now) {
  const double seconds = std::chrono::duration<double>(now - round_began_).count();
  const double rate = static_cast<double>(round_bytes_) / std::max(seconds, 1e-6);
  if (slower_size_ == 0 || rate > kWorthIt * slower_rate_) {
    slower_size_ = size_;
    slower_rate_ = rate;
    size_ = std::min(2 * size_, kMost);
  } else {
    size_ = std::exchange(slower_size_, 0);
    rest_parts_ = kRestRounds * size_;
  }
  begin_round(now);
}

void PartWindow::begin_round(TimePoint now) {
  round_began_ = now;
  round_parts_ = round_bytes_ = 0;
}

}  // namespace headrace::copy_detail
