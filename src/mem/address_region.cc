#include "mem/address_region.h"

#include <sys/mman.h>

#include <algorithm>
#include <utility>

#include "mem/size_class.h"

namespace headrace::mem {
namespace {

constexpr std::uint64_t kMostAheadBytes = 256 << 20;

}  // namespace

std::byte* map_aligned(std::uint64_t size_bytes) noexcept {
  const std::uint64_t mapped_bytes = size_bytes + kHugePageBytes;
  void* const at = ::mmap(nullptr, mapped_bytes, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED) return nullptr;
  const auto address = reinterpret_cast<std::uintptr_t>(at);
  const std::uint64_t lead = (kHugePageBytes - address % kHugePageBytes) % kHugePageBytes;
  std::byte* const base = static_cast<std::byte*>(at) + lead;
  if (lead > 0) ::munmap(at, lead);
  if (lead < kHugePageBytes) ::munmap(base + size_bytes, kHugePageBytes - lead);
  return base;
}

std::byte* AddressRegion::take(std::uint64_t size_bytes) noexcept {
  if (left_bytes_ < size_bytes) {
    give_up();
    const std::uint64_t ahead_bytes = std::min(taken_bytes_, kMostAheadBytes);
    const std::uint64_t more_bytes = std::max(size_bytes, ahead_bytes);
    if (!map(more_bytes) && (more_bytes == size_bytes || !map(size_bytes))) return nullptr;
  }
  std::byte* const taken = next_;
  next_ += size_bytes;
  left_bytes_ -= size_bytes;
  taken_bytes_ += size_bytes;
  return taken;
}

void AddressRegion::give_up() noexcept {
  if (left_bytes_ > 0) ::munmap(next_, std::exchange(left_bytes_, 0));
}

bool AddressRegion::map(std::uint64_t size_bytes) noexcept {
  next_ = map_aligned(size_bytes);
  if (next_ == nullptr) return false;
  left_bytes_ = size_bytes;
  // Failure (a kernel without huge pages) only costs speed.
  static_cast<void>(::madvise(next_, size_bytes, MADV_HUGEPAGE));
  return true;
}

}  // namespace headrace::mem
