#include "feed/residency/unpack_room.h"

#include <utility>

namespace headrace::feed {

UnpackRoom::UnpackRoom(SlabPool& pool, std::uint64_t standing_bytes) : pool_(pool) {
  if (standing_bytes == 0) return;
  auto slab = pool.try_reserve(standing_bytes);
  if (slab) standing_ = *std::move(slab);
}

std::optional<UnpackRoom::Lease> UnpackRoom::begin(std::uint64_t need_bytes, Slab& has) {
  Lease lease;
  lease.has_standing = is_standing_free_;
  const std::uint64_t has_bytes =
      has.size_bytes() + (lease.has_standing ? standing_.size_bytes() : 0);
  if (need_bytes > has_bytes) {
    auto more = pool_.try_reserve(need_bytes - has_bytes);
    if (!more) return std::nullopt;
    lease.more = *std::move(more);
  }
  lease.reserved = std::move(has);
  if (lease.has_standing) is_standing_free_ = false;
  ++lease_count_;
  return lease;
}

void UnpackRoom::end(Lease lease) noexcept {
  if (lease.has_standing) is_standing_free_ = true;
  --lease_count_;
}

}  // namespace headrace::feed
