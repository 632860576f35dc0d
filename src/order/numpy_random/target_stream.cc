#include "order/numpy_random/target_stream.h"

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
  for (std::size_t i = 0; i < kBlockDraws; ++i) {
    words_[2 * i] = static_cast<std::uint32_t>(draws_[i]);
    words_[2 * i + 1] = static_cast<std::uint32_t>(draws_[i] >> 32);
  }
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

std::size_t TargetStream::draw(std::uint64_t& i_inout, std::span<std::uint32_t> out) noexcept {
  constexpr std::uint32_t kStep = 8;
  auto i = static_cast<std::uint32_t>(i_inout);
  const std::size_t room = out.size() - kSlack;
  std::size_t count = 0;
  while (i != 0 && count < room) {
    const auto mask = static_cast<std::uint32_t>(mask_of(i));
    const std::uint32_t lowest = (mask >> 1) + 1;  // the mask stays the same down to here
    // Eight draws at once against one bound: right unless a draw lies so close below it that the
    // acceptances before it decide.
    while (i >= lowest + kStep && count < room && end_ - next_ >= kStep) {
      const std::uint32_t* words = &words_[next_];
      std::uint32_t* to = &out[count];
      std::uint32_t accepted = 0;
      std::uint32_t close = 0;
      for (std::uint32_t c = 0; c < kStep; ++c) {
        const std::uint32_t value = words[c] & mask;
        to[accepted] = value;
        accepted += static_cast<std::uint32_t>(value <= i);
        close |= static_cast<std::uint32_t>(i - value < kStep);
      }
      if (close != 0) break;
      next_ += kStep;
      count += accepted;
      i -= accepted;
    }
    // One by one: the ends of blocks, of masks, and close draws.
    for (std::uint32_t c = 0; c < kStep && i >= lowest && i != 0 && count < room; ++c) {
      if (next_ == end_) refill();
      const std::uint32_t value = words_[next_++] & mask;
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
