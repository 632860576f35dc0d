#pragma once
/// \file
/// UnpackRoom: lets as many blocks be unpacked at once as there is memory for what unpackers need
/// besides the columns that they make.
///
/// One unpacker at a time has a part of the limit that is reserved when the loader is made, so that
/// the first can always begin; others take what is free.
///
/// Threads: the feed thread only.
#include <cstdint>
#include <optional>

#include "headrace/memory.h"

namespace headrace::feed {

class UnpackRoom {
 public:
  /// Reserves `standing_bytes`; where the pool has no room for them now, the first unpacker takes
  /// what is free, too.
  UnpackRoom(SlabPool& pool, std::uint64_t standing_bytes);

  /// Room for one unpacker; movable, given back by UnpackRoom::end().
  struct Lease {
    bool has_standing = false;
    Slab reserved;
    Slab more;
  };
  /// Room for `need_bytes`, of which `has` was reserved before (taken only with success). Nothing:
  /// there is none now.
  std::optional<Lease> begin(std::uint64_t need_bytes, Slab& has);
  void end(Lease lease) noexcept;

  /// Whether an unpacker is at work.
  bool is_used() const noexcept { return lease_count_ > 0; }
  /// Of the pool, whether an unpacker has it or not.
  std::uint64_t standing_bytes() const noexcept { return standing_.size_bytes(); }

 private:
  SlabPool& pool_;
  Slab standing_;
  bool is_standing_free_ = true;
  std::uint32_t lease_count_ = 0;
};

}  // namespace headrace::feed
