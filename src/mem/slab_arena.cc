#include "headrace/slab_arena.h"

#include <algorithm>
#include <string>

namespace headrace {
namespace {

constexpr std::size_t kAlignment = 64;
/// What is asked for at least when the first slab is full.
constexpr std::size_t kLeastMoreBytes = std::size_t{256} << 10;

}  // namespace

std::uint64_t SlabArena::size_bytes() const noexcept {
  std::uint64_t sum = 0;
  for (const Slab& slab : slabs_) sum += slab.size_bytes();
  return sum;
}

Slab SlabArena::end() noexcept {
  Slab first = std::move(slabs_.front());
  slabs_.resize(1);
  filled_bytes_ = used_bytes_ = 0;
  return first;
}

std::uint64_t SlabArena::charged_bytes() const noexcept {
  std::uint64_t bytes = 0;
  for (const Slab& slab : slabs_) bytes += charged_bytes_of(slab);
  return bytes;
}

Result<std::span<std::byte>> SlabArena::take(std::size_t size_bytes) {
  const std::size_t begin = (used_bytes_ + kAlignment - 1) / kAlignment * kAlignment;
  const std::span<std::byte> all = slabs_.back().bytes();
  if (begin <= all.size() && size_bytes <= all.size() - begin) {
    used_bytes_ = begin + size_bytes;
    return all.subspan(begin, size_bytes);
  }
  // An eighth more than there is, so that a guess that was too low costs few slabs.
  const std::size_t least = std::max<std::size_t>(kLeastMoreBytes, this->size_bytes() / 8);
  auto slab = pool_->try_acquire(std::max(size_bytes, least));
  if (!slab && size_bytes < least) slab = pool_->try_acquire(std::max<std::size_t>(size_bytes, 1));
  if (!slab) {
    needed_bytes_ = filled_bytes_ + begin + size_bytes;
    return std::move(slab).error().annotate("a block takes more than the " +
                                            std::to_string(this->size_bytes()) +
                                            " bytes that its file let expect; raise memory");
  }
  slabs_.push_back(*std::move(slab));
  filled_bytes_ += begin;
  used_bytes_ = size_bytes;
  return slabs_.back().bytes().first(size_bytes);
}

}  // namespace headrace
