#pragma once
/// \file
/// FirstByteTimes: how long an endpoint takes to answer, by size class: a histogram that forgets,
/// and what follows from it: when a request is late, and when it is lost.
///
/// Threads: its owner's. Size: 2 KiB. record() costs some nanoseconds.
#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "headrace/clock.h"

namespace headrace::transfer {

class FirstByteTimes {
 public:
  /// Requests below 128 KiB, below 2 MiB, and the others: stores keep and cache small ones
  /// elsewhere, and large ones wait for their own body's disks.
  static constexpr std::size_t kClassCount = 3;
  static std::size_t class_of(std::uint64_t length_bytes) noexcept {
    return length_bytes < (128 << 10) ? 0 : length_bytes < (2 << 20) ? 1 : 2;
  }

  /// Takes in the time from sent to first byte; for an answer that nobody waited for any more, the
  /// time waited so far.
  void record(std::size_t size_class, Microseconds time) noexcept {
    Class& own = classes_[size_class];
    ++own.counts[bucket_of(time)];
    if (++own.total >= kForgetAt) own.halve();
    if (++own.since_look >= kLookEvery) own.look();
  }

  bool is_known(std::size_t size_class) const noexcept {
    return classes_[size_class].p95 > Microseconds(0);
  }
  /// Within 1/8 above; 0 while not is_known(). A little old: looked up every 32 records.
  Microseconds p95(std::size_t size_class) const noexcept { return classes_[size_class].p95; }
  Microseconds p99(std::size_t size_class) const noexcept { return classes_[size_class].p99; }

 private:
  static constexpr std::size_t kPerOctave = 8;
  static constexpr std::size_t kBuckets = 21 * kPerOctave;  // 32 us to 67 s
  static constexpr std::uint32_t kForgetAt = 2048;
  static constexpr std::uint32_t kLookEvery = 32;

  static std::size_t bucket_of(Microseconds time) noexcept {
    const auto units = static_cast<std::uint64_t>(std::max<std::int64_t>(time.count(), 32)) / 4;
    const auto octave = static_cast<std::size_t>(std::bit_width(units)) - 4;
    return std::min(kBuckets - 1, octave * kPerOctave + ((units >> octave) & 7));
  }
  static Microseconds bound_of(std::size_t bucket) noexcept {
    return Microseconds(
        static_cast<std::int64_t>((8 + bucket % kPerOctave + 1) << (bucket / kPerOctave + 2)));
  }

  struct Class {
    std::array<std::uint32_t, kBuckets> counts{};
    std::uint32_t total = 0;
    std::uint32_t since_look = 0;
    Microseconds p95{0};
    Microseconds p99{0};

    void halve() noexcept {
      total = 0;
      for (std::uint32_t& count : counts) total += count /= 2;
    }
    void look() noexcept {
      since_look = 0;
      std::uint32_t above_95 = total / 20;
      std::uint32_t above_99 = total / 100;
      p95 = p99 = Microseconds(0);
      std::uint32_t seen = 0;
      for (std::size_t i = kBuckets; i-- > 0 && p95 == Microseconds(0);) {
        seen += counts[i];
        if (seen > above_99 && p99 == Microseconds(0)) p99 = bound_of(i);
        if (seen > above_95) p95 = bound_of(i);
      }
    }
  };
  std::array<Class, kClassCount> classes_;
};

}  // namespace headrace::transfer
