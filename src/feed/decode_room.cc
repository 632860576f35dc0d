#include "feed/decode_room.h"

#include <string>
#include <utility>

namespace headrace::feed {

DecodeRoom::DecodeRoom(SlabPool& pool, std::uint64_t standing_bytes) : pool_(pool) {
  if (standing_bytes == 0) return;
  auto slab = pool.try_reserve(standing_bytes);
  if (slab) standing_ = *std::move(slab);
}

Result<std::optional<DecodeRoom::Lease>> DecodeRoom::begin(std::uint64_t need_bytes) {
  Lease lease;
  lease.has_standing = is_standing_free_;
  const std::uint64_t has_bytes = lease.has_standing ? standing_.size_bytes() : 0;
  if (need_bytes > has_bytes) {
    auto more = pool_.try_reserve(need_bytes - has_bytes);
    if (!more) {
      if (lease_count_ > 0) return std::optional<Lease>();
      const std::uint64_t lacks = need_bytes - has_bytes;
      return Status(Code::kExhausted,
                    "decoding needs " + std::to_string(need_bytes >> 20) +
                        " MiB besides its columns (for its largest pages or record batches), and "
                        "the memory limit of " +
                        std::to_string(pool_.limit_bytes() >> 20) +
                        " MiB leaves no room for it: raise memory by " +
                        std::to_string((lacks >> 20) + 1) + " MiB");
    }
    lease.more = *std::move(more);
  }
  if (lease.has_standing) is_standing_free_ = false;
  ++lease_count_;
  return std::optional<Lease>(std::move(lease));
}

void DecodeRoom::end(Lease lease) noexcept {
  if (lease.has_standing) is_standing_free_ = true;
  --lease_count_;
}

}  // namespace headrace::feed
