#pragma once
/// \file
/// The draws of many Fisher-Yates shuffles in a row, in bulk: the same as Generator::interval() one
/// by one, several times faster.
///
/// Place: src/order/numpy_random; pure. One thread at a time. While it lives, the generator it was
/// made from must not be used; finish() puts it where single draws would have left it.
#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "order/numpy_random/generator.h"

namespace headrace::numpy_random {

class TargetStream {
 public:
  /// \pre no shuffle it draws for has more than 2^32 items.
  /// `is_wide`: with the registers of wide.h.
  explicit TargetStream(Generator& rng, bool is_wide = has_wide())
      : rng_(rng), block_start_(rng), is_wide_(is_wide) {}
  TargetStream(const TargetStream&) = delete;
  TargetStream& operator=(const TargetStream&) = delete;
  ~TargetStream() { finish(); }

  /// Slots of draw()'s output that it may overwrite past what it returns.
  static constexpr std::size_t kSlack = 16;

  /// Targets interval(i), interval(i - 1), ... as many as fit before `kSlack`, at most down to
  /// interval(1). Moves `i` to the next one to draw (0: done) and returns how many.
  std::size_t draw(std::uint64_t& i, std::span<std::uint32_t> out) noexcept;

  /// Moves the generator behind the last draw; the stream is empty afterwards, and usable again.
  void finish() noexcept;

 private:
  static constexpr std::size_t kBlockDraws = 512;

  void refill() noexcept;
  std::uint32_t take() noexcept {
    if (next_ == end_) refill();
    return words_[next_++];
  }
  // As draw(), within one block and one mask; may do nothing.
#if defined(__x86_64__)
  HEADRACE_WIDE std::size_t draw_wide(std::uint32_t& i, std::span<std::uint32_t> out) noexcept;
#endif
  std::size_t draw_by_eights(std::uint32_t& i, std::span<std::uint32_t> out) noexcept;

  Generator& rng_;
  Generator block_start_;  // the generator before the block in words_
  alignas(64) std::array<std::uint64_t, kBlockDraws> draws_{};
  alignas(64) std::array<std::uint32_t, 2 * kBlockDraws> words_{};
  std::size_t next_ = 0;
  std::size_t end_ = 0;
  bool is_wide_;
  bool is_half_ = false;  // words_ holds only the half draw that the generator had left
};

/// Generator::shuffle(), in bulk.
template <class T>
void shuffle_in_bulk(TargetStream& stream, std::span<T> items) noexcept {
  // Targets drawn ahead of the swaps: enough to amortise, few enough for the first-level cache.
  constexpr std::size_t kAhead = 2048;
  // Above this many bytes a swap misses the second-level cache: fetch ahead.
  constexpr std::size_t kCacheBytes = 1 << 20;
  constexpr std::size_t kFetchAhead = 16;
  std::array<std::uint32_t, kAhead + TargetStream::kSlack> targets;
  if (items.empty()) return;
  const bool is_large = items.size_bytes() > kCacheBytes;
  for (std::uint64_t i = items.size() - 1; i != 0;) {
    std::uint64_t at = i;
    const std::size_t count = stream.draw(i, targets);
    if (is_large) {
      for (std::size_t k = 0; k < count; ++k) {
        if (k + kFetchAhead < count) __builtin_prefetch(&items[targets[k + kFetchAhead]], 1);
        std::swap(items[at--], items[targets[k]]);
      }
    } else {
      for (std::size_t k = 0; k < count; ++k) std::swap(items[at--], items[targets[k]]);
    }
  }
}

}  // namespace headrace::numpy_random
