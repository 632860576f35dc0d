// A look is taken once a room full of bytes has arrived. By Little's law that takes one latency
// when the room is what limits, whatever the latency is, so the law needs no times of its own; and
// where a single late read holds everything up, nothing arrives and nothing grows.
//
// After a step the first room full was asked for with another room and does not count. One unlucky
// look takes nothing back: the store's control follows a larger room only after two or three
// latencies, as it measures, too.
//
// What a step brought is measured twice. Bytes a second of one room full come in bursts: of a way
// that takes twice as much, every third doubling seemed to bring too little. How long requests take
// is steady, and says by Little's law how many bytes a second are on the way: twice as many where
// requests take no longer than before, no more where they take twice as long because the way (or
// the processor) is full. But that is too much where a larger room is full of what has come and
// waits for its turn. So the geometric mean of both counts, and the time alone must show half of
// it.
//
// A step that was taken back is tried again as it was: its memory has been touched, and the first
// look at it may have been wrong. Only what is larger than all before goes by small steps.
#include "io/read_ahead_room.h"

#include <algorithm>
#include <cmath>

namespace headrace::io {
namespace {

/// So much of what arrived was held back by the store: it has all it takes.
constexpr std::uint64_t kHeldShare = 2;
/// Steps double the room until one was of no use, and are a quarter of it from then on.
constexpr std::uint64_t kSmallStep = 4;
/// Of what proportion would give, a step must bring this part: as in BBR's start-up (Cardwell et
/// al., "BBR: Congestion-Based Congestion Control", ACM Queue 2016).
constexpr double kLeastGain = 0.25;
/// And this part at least by the time of requests alone, which comes in no bursts: in a model of a
/// full processor, luck alone made 13 rooms of 50 grow beyond twice what fills it.
constexpr double kLeastTimeGain = 0.125;
/// Rooms full until the next step is tried after one was of no use; doubles each time. It begins
/// low because the first looks are the least sure (memory that is touched first, connections that
/// are opened), and because the step that is tried again touches no more memory than the last.
constexpr std::uint32_t kFirstRest = 2;
constexpr std::uint32_t kLongestRest = 1024;
/// A store has held back a request that was not sent for this part of its time.
constexpr int kHeldPart = 4;

}  // namespace

void Arrivals::add(const Completion& completion, std::uint64_t length_bytes,
                   bool was_held) noexcept {
  bytes += length_bytes;
  const auto held = completion.sent - completion.submitted;
  const auto took = completion.finished - completion.submitted;
  if (was_held || held * kHeldPart >= took) held_bytes += length_bytes;
  const TimePoint sent = completion.was_cached ? completion.submitted : completion.sent;
  const std::chrono::duration<double, std::micro> us = completion.finished - sent;
  ++requests;
  log_us += std::log(std::max(us.count(), 1.0));
}

void ReadAheadRoom::begin(std::uint64_t fixed_bytes, std::uint64_t first_bytes,
                          std::uint64_t most_bytes) {
  fixed_bytes_ = fixed_bytes;
  most_ahead_bytes_ = most_bytes - fixed_bytes;
  ahead_bytes_ = std::min(most_ahead_bytes_, std::max(first_bytes - fixed_bytes, found_bytes_));
  if (phase_ != Phase::kRest) phase_ = Phase::kFill;
  smaller_bytes_ = 0;
  is_second_look_ = is_refused_ = is_waited_for_ = false;
}

void ReadAheadRoom::look(const Arrivals& arrivals, TimePoint now) noexcept {
  const std::uint64_t arrived = arrivals.bytes - from_.bytes;
  if (arrived < ahead_bytes_) return;
  const bool is_held = (arrivals.held_bytes - from_.held_bytes) * kHeldShare >= arrived;
  const bool is_wanted = is_refused_ && is_waited_for_ && !is_held;
  const double elapsed_s = std::chrono::duration<double>(now - since_).count();
  const auto requests = static_cast<double>(arrivals.requests - from_.requests);
  const double log_us = (arrivals.log_us - from_.log_us) / std::max(requests, 1.0);
  from_ = arrivals;
  since_ = now;
  is_refused_ = is_waited_for_ = false;
  if (phase_ == Phase::kFill) {
    phase_ = Phase::kMeasure;
  } else if (phase_ == Phase::kRest) {
    if (--rest_left_ == 0) phase_ = Phase::kMeasure;
  } else if (elapsed_s > 0) {
    const Found found{.bytes_per_s = static_cast<double>(arrived) / elapsed_s,
                      .log_us = log_us,
                      .is_held = is_held};
    if (smaller_bytes_ > 0) judge(found);
    if (phase_ == Phase::kMeasure && is_wanted && !is_second_look_) grow(found);
  }
}

bool ReadAheadRoom::was_of_use(const Found& found) const noexcept {
  const double growth = static_cast<double>(ahead_bytes_) / static_cast<double>(smaller_bytes_);
  const double by_bytes = found.bytes_per_s / smaller_.bytes_per_s;
  const double by_time = growth * std::exp(smaller_.log_us - found.log_us);
  const double least = 1 + kLeastGain * (growth - 1);
  // What the store holds back is not on its way, and makes nothing slower there.
  if (found.is_held) return by_bytes >= least;
  // Where requests take that much longer, a burst is what brought more bytes.
  if (by_time < 1 + kLeastTimeGain * (growth - 1)) return false;
  return std::sqrt(by_bytes * by_time) >= least;
}

/// Keeps the last step, takes it back, or looks again.
void ReadAheadRoom::judge(const Found& found) noexcept {
  if (was_of_use(found)) {
    found_bytes_ = ahead_bytes_;
    is_last_step_good_ = true;
    smaller_bytes_ = 0;
    is_second_look_ = false;
  } else if (!is_second_look_) {
    is_second_look_ = true;
  } else {
    ahead_bytes_ = std::min(ahead_bytes_, smaller_bytes_);
    smaller_bytes_ = 0;
    is_second_look_ = false;
    is_last_step_good_ = false;
    is_near_ = true;
    rest_ = std::clamp(2 * rest_, kFirstRest, kLongestRest);
    rest_left_ = rest_;
    phase_ = Phase::kRest;
  }
}

void ReadAheadRoom::grow(const Found& found) noexcept {
  if (is_all()) return;
  is_last_step_good_ = false;
  smaller_bytes_ = ahead_bytes_;
  smaller_ = found;
  const std::uint64_t step = is_near_ ? ahead_bytes_ / kSmallStep + 1 : ahead_bytes_;
  ahead_bytes_ = std::min(most_ahead_bytes_, std::max(ahead_bytes_ + step, touched_bytes_));
  touched_bytes_ = ahead_bytes_;
  phase_ = Phase::kFill;
}

}  // namespace headrace::io
