#pragma once
/// \file
/// EarlyCount: counts the bytes of a large send or receive while it goes on, so that whoever shows
/// progress sees it move. In the end its counter stands where it would have stood without.
///
/// Threads: its connection's.
#include <algorithm>
#include <cstdint>

#include "store/transfer/transfer_counters.h"

namespace headrace::transfer {

class EarlyCount {
 public:
  explicit EarlyCount(Counter& counter) : counter_(counter) {}

  /// From now on up to `most_bytes` are counted early; 0: nothing is. \pre the operation moves as
  /// many, if it succeeds
  void start(std::uint64_t most_bytes) noexcept {
    most_bytes_ = most_bytes;
    early_bytes_ = 0;
  }
  bool is_on() const noexcept { return most_bytes_ > 0; }
  /// So many more have been seen on the wire, which with TLS has more than the operation moves.
  void add_seen(std::uint64_t bytes) noexcept {
    const std::uint64_t more_bytes = std::min(bytes, most_bytes_ - early_bytes_);
    counter_.add(more_bytes);
    early_bytes_ += more_bytes;
  }
  /// The operation has ended, and has moved so many.
  void end(std::uint64_t bytes) noexcept {
    counter_.add(bytes - std::min(bytes, early_bytes_));
    start(0);
  }

 private:
  Counter& counter_;
  std::uint64_t most_bytes_ = 0;
  std::uint64_t early_bytes_ = 0;  // of the operation: counted already
};

}  // namespace headrace::transfer
