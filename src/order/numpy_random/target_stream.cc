#include "order/numpy_random/target_stream.h"

#include <bit>
#include <cstring>

namespace headrace::numpy_random {

void TargetStream::refill() noexcept {
  next_ = 0;
  is_half_ = rng_.has_half();
  if (is_half_) {
    words_[0] = rng_.half();
    rng_.set_half(false, 0);
    end_ = 1;
    return;
  }
  block_start_ = rng_;
  rng_.fill64(draws_);
  static_assert(std::endian::native == std::endian::little);
  std::memcpy(words_.data(), draws_.data(), sizeof words_);  // the low half of each comes first
  end_ = words_.size();
}

void TargetStream::finish() noexcept {
  if (is_half_) {
    if (next_ == 0) rng_.set_half(true, words_[0]);
  } else if (end_ != 0) {
    rng_ = block_start_;
    rng_.skip64((next_ + 1) / 2);
    if (next_ % 2 != 0) rng_.set_half(true, words_[next_]);
  }
  next_ = 0;
  end_ = 0;
  is_half_ = false;
}

namespace {

constexpr std::uint32_t kWideStep = TargetStream::kSlack;

/// The bounds of a shuffle that are drawn with one mask: i down to `lowest`.
struct Level {
  explicit Level(std::uint32_t i) noexcept
      : mask(static_cast<std::uint32_t>(mask_of(i))), lowest((mask >> 1) + 1) {}
  std::uint32_t mask;
  std::uint32_t lowest;
};

}  // namespace

#if defined(__x86_64__)
/// Sixteen words at a time. A word is accepted when it is at most i less the acceptances before it.
HEADRACE_WIDE std::size_t TargetStream::draw_wide(std::uint32_t& i,
                                                  std::span<std::uint32_t> out) noexcept {
  const __m512i lanes = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
  const Level level(i);
  const __m512i mask = _mm512_set1_epi32(static_cast<int>(level.mask));
  std::uint32_t bound = i;
  std::size_t count = 0;
  std::size_t next = next_;
  while (bound >= level.lowest && bound != 0 && count + kWideStep <= out.size() &&
         end_ - next >= kWideStep) {
    const __m512i values = _mm512_and_si512(_mm512_loadu_si512(&words_[next]), mask);
    const __m512i bounds = _mm512_set1_epi32(static_cast<int>(bound));
    const __mmask16 at_most = _mm512_cmple_epu32_mask(values, bounds);
    // Right as long as each of these is accepted.
    const __m512i accepted_before = _mm512_maskz_expand_epi32(at_most, lanes);
    const __mmask16 right =
        _mm512_mask_cmple_epu32_mask(at_most, values, _mm512_sub_epi32(bounds, accepted_before));
    std::uint32_t accepted = at_most;
    std::uint32_t used = kWideStep;
    const std::uint32_t left = bound - level.lowest + 1;  // of this level
    const auto wrong = static_cast<std::uint32_t>(at_most & ~right);
    if (wrong != 0 || static_cast<std::uint32_t>(std::popcount(accepted)) >= left) [[unlikely]] {
      if (wrong != 0) {
        // The first that is not, and nothing behind it.
        const auto first = static_cast<std::uint32_t>(std::countr_zero(wrong));
        accepted &= (1U << first) - 1;
        used = first + 1;
      }
      if (static_cast<std::uint32_t>(std::popcount(accepted)) >= left) {
        // Nothing behind the last one of this level.
        while (static_cast<std::uint32_t>(std::popcount(accepted)) > left) {
          accepted &= ~std::bit_floor(accepted);
        }
        used = static_cast<std::uint32_t>(std::bit_width(accepted));
      }
    }
    _mm512_storeu_si512(&out[count],
                        _mm512_maskz_compress_epi32(static_cast<__mmask16>(accepted), values));
    const auto taken = static_cast<std::uint32_t>(std::popcount(accepted));
    next += used;
    count += taken;
    bound -= taken;
  }
  next_ = next;
  i = bound;
  return count;
}
#endif

/// Eight words at a time against one bound: right unless a word lies so close below it that the
/// acceptances before it decide. Stops there, and before the level ends.
std::size_t TargetStream::draw_by_eights(std::uint32_t& i, std::span<std::uint32_t> out) noexcept {
  constexpr std::uint32_t kStep = 8;
  const Level level(i);
  std::size_t count = 0;
  while (i >= level.lowest + kStep && count + kStep <= out.size() && end_ - next_ >= kStep) {
    const std::uint32_t* words = &words_[next_];
    std::uint32_t* to = &out[count];
    std::uint32_t accepted = 0;
    std::uint32_t close = 0;
    for (std::uint32_t c = 0; c < kStep; ++c) {
      const std::uint32_t value = words[c] & level.mask;
      to[accepted] = value;
      accepted += static_cast<std::uint32_t>(value <= i);
      close |= static_cast<std::uint32_t>(i - value < kStep);
    }
    if (close != 0) break;
    next_ += kStep;
    count += accepted;
    i -= accepted;
  }
  return count;
}

std::size_t TargetStream::draw(std::uint64_t& i_inout, std::span<std::uint32_t> out) noexcept {
  auto i = static_cast<std::uint32_t>(i_inout);
  const std::size_t room = out.size() - kSlack;
  std::size_t count = 0;
  while (i != 0 && count < room) {
    std::size_t singles = 8;
#if defined(__x86_64__)
    if (is_wide_) {
      if (next_ == end_) refill();
      count += draw_wide(i, out.subspan(count));
      singles = end_ - next_ < kWideStep ? end_ - next_ : 0;
    }
#endif
    if (!is_wide_) count += draw_by_eights(i, out.subspan(count));
    // One by one: the ends of blocks, and without wide registers also those of levels and close
    // draws.
    const Level level(i);
    for (; singles != 0 && i >= level.lowest && i != 0 && count < room; --singles) {
      const std::uint32_t value = take() & level.mask;
      if (value <= i) {
        out[count++] = value;
        --i;
      }
    }
  }
  i_inout = i;
  return count;
}

}  // namespace headrace::numpy_random
