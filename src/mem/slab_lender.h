#pragma once
/// \file
/// SlabLender: parts of one slab, each for a request of its own, so that what many requests bring
/// lands in one piece without a copy.
///
/// Threads: lend() from one thread; parts may be given back on any.
#include <atomic>
#include <cstddef>
#include <span>

#include "base/check.h"
#include "headrace/memory.h"

namespace headrace::mem {

class SlabLender final : public SlabOwner {
 public:
  /// `whole`: a slab of `pool`; both outlive this, and the slab stays where it is. All parts must
  /// be back when it is destroyed; its destructor checks this. Holds on them may last longer.
  SlabLender(SlabPool& pool, const Slab& whole) noexcept : pool_(pool), whole_(whole) {}
  ~SlabLender() override { HEADRACE_CHECK(out_count_.load(std::memory_order_acquire) == 0); }

  /// Bytes [offset, offset + size) as a slab; counts nothing against the limit. Parts that are out
  /// at the same time must not overlap. \pre 0 < size, offset + size <= what there is.
  Slab lend(std::size_t offset_bytes, std::size_t size_bytes) noexcept {
    const std::span<std::byte> part = whole_.bytes().subspan(offset_bytes, size_bytes);
    out_count_.fetch_add(1, std::memory_order_relaxed);
    return make_slab(part.data(), part.size(), 0);
  }

 private:
  void release(std::byte*, std::uint32_t) noexcept override {
    // What was written is seen by whoever reads the slab after this.
    out_count_.fetch_sub(1, std::memory_order_release);
  }

  Slab hold(std::span<std::byte> part) override { return pool_.hold_part(whole_, part); }

  SlabPool& pool_;
  const Slab& whole_;
  std::atomic<std::size_t> out_count_{0};
};

}  // namespace headrace::mem
