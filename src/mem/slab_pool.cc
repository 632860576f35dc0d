#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/mutex.h"
#include "headrace/memory.h"
#include "mem/size_class.h"

namespace headrace {
namespace {

using mem::class_bytes;
using mem::class_of;
using mem::class_pitch_bytes;
using mem::kClassCount;
using mem::kHugePageBytes;

constexpr std::uint64_t kSmallestLimitBytes = 64 << 10;

/// One size class: a stretch of addresses cut into slots. A slot is out, warm (free, with memory)
/// or cold (no memory).
struct SizeClass {
  std::byte* base = nullptr;
  std::uint32_t slot_count = 0;        // how many fit under the limit
  std::uint32_t fresh = 0;             // slots [fresh, slot_count) were never used
  std::uint64_t accessible_bytes = 0;  // [base, +accessible_bytes) is readable and writable
  std::uint64_t last_use = 0;          // acquire count of the pool when this class last served
  std::vector<std::uint32_t> warm;     // last in, first out: the one in the CPU's caches first
  std::vector<std::uint32_t> cold;
};

/// The whole reservation; unmapped when destroyed.
class Addresses {
 public:
  Addresses(std::byte* base, std::uint64_t size_bytes) noexcept
      : base_(base), size_bytes_(size_bytes) {}
  Addresses(Addresses&& o) noexcept
      : base_(std::exchange(o.base_, nullptr)), size_bytes_(o.size_bytes_) {}
  Addresses& operator=(Addresses&&) = delete;
  ~Addresses() {
    if (base_ != nullptr) ::munmap(base_, size_bytes_);
  }
  std::byte* aligned_base() const noexcept {
    const auto address = reinterpret_cast<std::uintptr_t>(base_);
    return base_ + ((kHugePageBytes - address % kHugePageBytes) % kHugePageBytes);
  }

 private:
  std::byte* base_;
  std::uint64_t size_bytes_;
};

std::uint64_t round_to_huge(std::uint64_t bytes) noexcept {
  return (bytes + kHugePageBytes - 1) / kHugePageBytes * kHugePageBytes;
}

class PoolImpl final : public SlabPool {
 public:
  PoolImpl(Addresses addresses, std::uint64_t limit_bytes)
      : addresses_(std::move(addresses)), limit_bytes_(limit_bytes) {
    std::byte* next = addresses_.aligned_base();
    for (std::uint32_t i = 0; i < kClassCount && class_bytes(i) <= limit_bytes; ++i) {
      SizeClass& c = classes_[i];
      c.base = next;
      c.slot_count = slots_of(i, limit_bytes);
      const std::uint64_t region_bytes = region_of(i, limit_bytes);
      // Whole slabs of huge pages, else none: where the system's default is "always", a small slab
      // would otherwise make 2 MiB resident. Failure (kernel without huge pages) only costs speed.
      const bool whole = class_bytes(i) % kHugePageBytes == 0;
      static_cast<void>(::madvise(c.base, region_bytes, whole ? MADV_HUGEPAGE : MADV_NOHUGEPAGE));
      next += region_bytes;
    }
  }
  ~PoolImpl() override { HEADRACE_CHECK(used_bytes() == 0); }

  static std::uint32_t slots_of(std::uint32_t index, std::uint64_t limit_bytes) noexcept {
    return static_cast<std::uint32_t>(
        std::min<std::uint64_t>(limit_bytes / class_bytes(index), UINT32_MAX));
  }
  static std::uint64_t region_of(std::uint32_t index, std::uint64_t limit_bytes) noexcept {
    return round_to_huge(slots_of(index, limit_bytes) * class_pitch_bytes(index));
  }

  Result<Slab> try_acquire(std::size_t size_bytes) override {
    HEADRACE_TRY(check_size(size_bytes));
    MutexLock lock(mutex_);
    Slab slab = take(size_bytes);
    if (!slab) return Status(Code::kExhausted, no_room(size_bytes));
    return slab;
  }

  Result<Slab> acquire(std::size_t size_bytes, TimePoint until) override {
    HEADRACE_TRY(check_size(size_bytes));
    MutexLock lock(mutex_);
    bool in_time = true;
    while (true) {
      Slab slab = take(size_bytes);
      if (slab) return slab;
      if (!in_time) return Status(Code::kDeadline, no_room(size_bytes));
      ++waiter_count_;
      in_time = lock.wait_until(room_, until);
      --waiter_count_;
    }
  }

  std::uint64_t limit_bytes() const noexcept override { return limit_bytes_; }
  // Written under the mutex; readers want a recent value, not an order.
  std::uint64_t used_bytes() const noexcept override {
    return used_bytes_.load(std::memory_order_relaxed);
  }
  std::uint64_t committed_bytes() const noexcept override {
    return committed_bytes_.load(std::memory_order_relaxed);
  }
  std::uint64_t peak_bytes() const noexcept override {
    return peak_bytes_.load(std::memory_order_relaxed);
  }

 private:
  Status check_size(std::size_t size_bytes) const {
    if (size_bytes == 0) return Status(Code::kInvalidArgument, "a slab of 0 bytes was asked for");
    if (charged_bytes(size_bytes) <= limit_bytes_) return {};
    return Status(Code::kInvalidArgument,
                  "a slab of " + std::to_string(size_bytes) + " bytes counts " +
                      std::to_string(charged_bytes(size_bytes)) +
                      ", more than the memory limit of " + std::to_string(limit_bytes_));
  }
  std::string no_room(std::size_t size_bytes) const {
    return "no room for a slab of " + std::to_string(size_bytes) +
           " bytes: " + std::to_string(used_bytes()) + " of " + std::to_string(limit_bytes_) +
           " bytes are in use";
  }

  /// A slab, or an empty one when there is no room.
  Slab take(std::size_t size_bytes) HEADRACE_REQUIRES(mutex_) {
    const std::uint32_t index = class_of(size_bytes);
    SizeClass& c = classes_[index];
    const std::uint64_t bytes = class_bytes(index);
    if (used_bytes() + bytes > limit_bytes_) return {};
    std::uint32_t slot = 0;
    if (!c.warm.empty()) {
      slot = c.warm.back();
      c.warm.pop_back();
    } else {
      make_room(bytes);
      if (!take_cold(index, slot)) return {};
      const std::uint64_t committed = committed_bytes() + bytes;
      HEADRACE_CHECK(committed <= limit_bytes_);
      committed_bytes_.store(committed, std::memory_order_relaxed);
      peak_bytes_.store(std::max(peak_bytes(), committed), std::memory_order_relaxed);
    }
    c.last_use = ++use_count_;
    used_bytes_.store(used_bytes() + bytes, std::memory_order_relaxed);
    return make_slab(c.base + slot * class_pitch_bytes(index), size_bytes, index);
  }

  /// Gives back the memory of free slabs, least recently used class first, until `bytes` more fit.
  /// The system call is made under the lock on purpose: so try_acquire() fails only when the slabs
  /// *in use* leave no room, which the caller can reason about. It happens when the mix of sizes
  /// changes, not at steady state.
  void make_room(std::uint64_t bytes) HEADRACE_REQUIRES(mutex_) {
    while (committed_bytes() + bytes > limit_bytes_) {
      std::uint32_t oldest = kClassCount;
      for (std::uint32_t i = 0; i < kClassCount; ++i) {
        if (classes_[i].warm.empty()) continue;
        if (oldest == kClassCount || classes_[i].last_use < classes_[oldest].last_use) oldest = i;
      }
      HEADRACE_CHECK(oldest < kClassCount);  // committed = used + warm, and used + bytes fits
      SizeClass& c = classes_[oldest];
      const std::uint32_t slot = c.warm.back();
      c.warm.pop_back();
      c.cold.push_back(slot);
      const int rc =
          ::madvise(c.base + slot * class_pitch_bytes(oldest), class_bytes(oldest), MADV_DONTNEED);
      HEADRACE_CHECK(rc == 0);
      committed_bytes_.store(committed_bytes() - class_bytes(oldest), std::memory_order_relaxed);
    }
  }

  /// Finds a slot without memory; false when the system refuses to make it accessible.
  bool take_cold(std::uint32_t index, std::uint32_t& slot) HEADRACE_REQUIRES(mutex_) {
    SizeClass& c = classes_[index];
    if (!c.cold.empty()) {
      slot = c.cold.back();
      c.cold.pop_back();
      return true;
    }
    HEADRACE_CHECK(c.fresh < c.slot_count);  // all slots together are no more than the limit
    const std::uint64_t pitch_bytes = class_pitch_bytes(index);
    const std::uint64_t needed_bytes = (std::uint64_t{c.fresh} + 1) * pitch_bytes;
    if (needed_bytes > c.accessible_bytes) {
      // In steps of 2 MiB, so that small classes make few calls. The step lies inside the region,
      // which is rounded up.
      const std::uint64_t until_bytes = round_to_huge(needed_bytes);
      const std::uint64_t grown_bytes = until_bytes - c.accessible_bytes;
      if (::mprotect(c.base + c.accessible_bytes, grown_bytes, PROT_READ | PROT_WRITE) != 0)
        return false;
      c.accessible_bytes = until_bytes;
    }
    const std::uint64_t huge_bytes = class_bytes(index) / kHugePageBytes * kHugePageBytes;
    if (huge_bytes > 0 && huge_bytes < class_bytes(index)) {
      // 2.5, 3, 3.5, 5 and 7 MiB: huge pages for what they cover completely, small ones for the
      // rest.
      static_cast<void>(::madvise(c.base + c.fresh * pitch_bytes, huge_bytes, MADV_HUGEPAGE));
    }
    slot = c.fresh++;
    // Room for every slot in both lists, so that release() never allocates.
    if (c.warm.capacity() < c.fresh) {
      c.warm.reserve(std::size_t{c.fresh} * 2);
      c.cold.reserve(std::size_t{c.fresh} * 2);
    }
    return true;
  }

  void release(std::byte* data, std::uint32_t class_index) noexcept override {
    MutexLock lock(mutex_);
    SizeClass& c = classes_[class_index];
    const auto offset_bytes = static_cast<std::uint64_t>(data - c.base);
    HEADRACE_DCHECK(offset_bytes % class_pitch_bytes(class_index) == 0);
    c.warm.push_back(static_cast<std::uint32_t>(offset_bytes / class_pitch_bytes(class_index)));
    used_bytes_.store(used_bytes() - class_bytes(class_index), std::memory_order_relaxed);
    // Under the lock: the acquire() that this ends may be the last act before the pool is
    // destroyed.
    if (waiter_count_ > 0) room_.notify_all();
  }

  const Addresses addresses_;
  const std::uint64_t limit_bytes_;
  Mutex mutex_;
  std::condition_variable room_;
  std::array<SizeClass, kClassCount> classes_ HEADRACE_GUARDED_BY(mutex_);
  std::uint64_t use_count_ HEADRACE_GUARDED_BY(mutex_) = 0;
  std::uint32_t waiter_count_ HEADRACE_GUARDED_BY(mutex_) = 0;
  std::atomic<std::uint64_t> used_bytes_{0};
  std::atomic<std::uint64_t> committed_bytes_{0};
  std::atomic<std::uint64_t> peak_bytes_{0};
};

}  // namespace

std::uint64_t SlabPool::charged_bytes(std::size_t size_bytes) noexcept {
  if (size_bytes == 0) return 0;
  const std::uint32_t index = class_of(size_bytes);
  return index < kClassCount ? class_bytes(index) : UINT64_MAX;
}

Result<std::unique_ptr<SlabPool>> SlabPool::create(const Options& options) {
  if (options.limit_bytes < kSmallestLimitBytes) {
    return Status(Code::kInvalidArgument,
                  "a memory limit of " + std::to_string(options.limit_bytes) +
                      " bytes is too small: at least " + std::to_string(kSmallestLimitBytes));
  }
  std::uint64_t reserved_bytes = kHugePageBytes;
  for (std::uint32_t i = 0; i < kClassCount && class_bytes(i) <= options.limit_bytes; ++i) {
    reserved_bytes += PoolImpl::region_of(i, options.limit_bytes);
    if (reserved_bytes >= std::uint64_t{1} << 47)
      break;  // more than any x86-64 or ARM process can have; mmap will refuse
  }
  // PROT_NONE and NORESERVE: addresses only, not counted as memory even where overcommit is off.
  void* base = ::mmap(nullptr, reserved_bytes, PROT_NONE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (base == MAP_FAILED) {
    return Status(Code::kExhausted, "cannot reserve " + std::to_string(reserved_bytes) +
                                        " bytes of addresses for a memory limit of " +
                                        std::to_string(options.limit_bytes) + ": " +
                                        std::strerror(errno));
  }
  Addresses addresses(static_cast<std::byte*>(base), reserved_bytes);
  return std::unique_ptr<SlabPool>(
      std::make_unique<PoolImpl>(std::move(addresses), options.limit_bytes));
}

}  // namespace headrace
