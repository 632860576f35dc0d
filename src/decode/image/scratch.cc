#include "decode/image/scratch.h"

#include <new>

namespace headrace::detail {

std::uint8_t* Scratch::take(ScratchUse use, std::size_t size_bytes) noexcept {
  Buffer& buffer = buffers_[static_cast<std::size_t>(use)];
  if (buffer.size_bytes < size_bytes) {
    // Freed first: both at once would be more than needs() says.
    buffer.memory.reset();
    buffer.memory.reset(new (std::nothrow) std::uint8_t[size_bytes]);
    buffer.size_bytes = buffer.memory ? size_bytes : 0;
  }
  return buffer.memory.get();
}

void Scratch::trim() noexcept {
  if (size_bytes() <= kMostKeptBytes) return;
  for (Buffer& buffer : buffers_) buffer = {};
}

std::size_t Scratch::size_bytes() const noexcept {
  std::size_t sum = 0;
  for (const Buffer& buffer : buffers_) sum += buffer.size_bytes;
  return sum;
}

Scratch& thread_scratch() noexcept {
  thread_local Scratch scratch;
  return scratch;
}

}  // namespace headrace::detail
