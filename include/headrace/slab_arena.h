#pragma once
/// \file
/// SlabArena: memory of a pool, handed out piece by piece and given back as a whole.
///
/// Place: what Dataset::decode() puts columns in, so that they count against the limit.
///
/// Threads: one owner at a time.
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "headrace/memory.h"

namespace headrace {

class SlabArena {
 public:
  /// Begins with `first` (of `pool`, may be empty); more comes from `pool`, which must outlive
  /// this.
  SlabArena(SlabPool& pool, Slab first) : pool_(&pool) { slabs_.push_back(std::move(first)); }

  /// `size_bytes` of memory, at a multiple of 64; valid until the arena is destroyed, also when it
  /// moves. Errors: kExhausted (says how much there is), kInvalidArgument (more than the limit);
  /// needed_bytes() has then what would have been enough up to here.
  Result<std::span<std::byte>> take(std::size_t size_bytes);

  /// What one slab would have to hold for all that was taken and the last take() that failed; 0
  /// while none failed.
  std::uint64_t needed_bytes() const noexcept { return needed_bytes_; }

  /// Gives back all but the first slab, which it returns. What was taken is no longer valid.
  Slab end() noexcept;

  /// Sizes of all slabs, as asked for.
  std::uint64_t size_bytes() const noexcept;
  /// What they count against the pool's limit.
  std::uint64_t charged_bytes() const noexcept;

 private:
  SlabPool* pool_;
  std::vector<Slab> slabs_;         ///< The last is the one in use.
  std::uint64_t filled_bytes_ = 0;  ///< Taken from the slabs before the last.
  std::size_t used_bytes_ = 0;      ///< Taken from the last.
  std::uint64_t needed_bytes_ = 0;
};

}  // namespace headrace
