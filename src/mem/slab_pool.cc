// Invariants, under the mutex:
// - used <= limit; used + orphans <= committed <= limit + held <= limit + most_held. Committed
//   counts slabs that are out, held or warm, and reservations.
// - try_acquire() fails only where what is in use leaves no room: everything else that is committed
//   can be given back, one slab at a time.
// - Classes from kClassCount on are those of shared slabs, of the sizes of the first kClassCount.
//   Each shared slab is mapped by itself, as slabs of 2 MiB and more are.
// - A slab of which parts are held is in held_ until the last hold ends. Until its owner has given
//   it back it is used; from then on it is an orphan, which counts apart from the limit.
// - A span's addresses are all out, warm or cold slabs of one class. While it is *whole*, it has
//   huge pages and no cold slab: a huge page is touched at once, so its slabs are committed at
//   once. The first slab of it that gives its memory back ends that for good.
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <condition_variable>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/mutex.h"
#include "headrace/memory.h"
#include "mem/address_region.h"
#include "mem/page_toucher.h"
#include "mem/shared_file.h"
#include "mem/size_class.h"

namespace headrace {
namespace {

using mem::class_of;
using mem::class_pitch_bytes;
using mem::kClassCount;
using mem::kHugePageBytes;
using mem::map_aligned;
using mem::span_bytes;

constexpr std::uint64_t kSmallestLimitBytes = 64 << 10;
/// A span is whole where it takes at most this part of what is left of the limit: what it commits
/// beyond the slab that is asked for shall not drive others out.
constexpr std::uint64_t kWholeShare = 8;

/// Of private and shared slabs.
constexpr std::uint32_t kAllClassCount = 2 * kClassCount;

constexpr std::uint64_t class_bytes(std::uint32_t index) noexcept {
  return mem::class_bytes(index % kClassCount);
}
constexpr bool is_shared(std::uint32_t index) noexcept {
  return index >= kClassCount && index < kAllClassCount;
}
/// What a hold has for its class.
constexpr std::uint32_t kHoldIndex = UINT32_MAX;

/// One size class. A slab is out, warm (free, with memory) or cold (free, addresses only).
struct SizeClass {
  std::uint64_t last_use = 0;    // acquire count of the pool when this class last served
  std::size_t slab_count = 0;    // out, warm and cold together
  std::vector<std::byte*> warm;  // last in, first out: the one in the CPU's caches first
  std::vector<std::byte*> cold;  // of slabs in spans; those mapped by themselves are unmapped
};

/// Addresses that slabs of a class below 2 MiB share.
struct Span {
  std::uint64_t size_bytes = 0;
  bool is_whole = false;
};

/// A slab of which parts are held.
struct HeldSlab {
  std::uint32_t class_index = 0;
  std::uint32_t hold_count = 0;
  bool is_orphan = false;
};

/// Mapped by itself, not in a span.
bool is_single(std::uint32_t index) noexcept {
  return is_shared(index) || class_bytes(index) >= kHugePageBytes;
}

class PoolImpl final : public SlabPool {
 public:
  explicit PoolImpl(const Options& options)
      : limit_bytes_(options.limit_bytes), most_held_bytes_(options.most_held_bytes) {}
  ~PoolImpl() override {
    HEADRACE_CHECK(used_bytes() == 0);
    wait_for_holds();
    toucher_.end();
    for (std::uint32_t i = 0; i < kClassCount; ++i) {
      if (!is_single(i)) continue;
      for (std::byte* const slab : classes_[i].warm) ::munmap(slab, class_pitch_bytes(i));
    }
    for (const auto& [base, span] : spans_) ::munmap(base, span.size_bytes);
  }

  Result<Slab> try_acquire(std::size_t size_bytes) override { return try_take(size_bytes, 0); }

  Result<Slab> try_acquire_shared(std::size_t size_bytes) override {
    return try_take(size_bytes, kClassCount);
  }

  std::optional<SharedPlace> shared_place(const Slab& slab) const override {
    if (!is_shared(class_index_of(slab)) || slab.bytes().empty()) return std::nullopt;
    MutexLock lock(mutex_);
    return SharedPlace{.fd = shared_.fd(), .offset = shared_.offset_of(slab.bytes().data())};
  }

  Result<Slab> try_reserve(std::size_t size_bytes) override {
    HEADRACE_TRY(check_size(size_bytes));
    MutexLock lock(mutex_);
    const std::uint64_t bytes = charged_bytes(size_bytes);
    if (used_bytes() + bytes > limit_bytes_) return Status(Code::kExhausted, no_room(size_bytes));
    make_room(bytes);
    count(bytes);
    return make_slab(nullptr, size_bytes, class_of(size_bytes));
  }

  Slab hold_part(const Slab& whole, std::span<std::byte> part) override {
    MutexLock lock(mutex_);
    const std::uint32_t index = class_index_of(whole);
    const auto [at, is_first] =
        held_.try_emplace(whole.bytes().data(), HeldSlab{.class_index = index});
    if (is_first && held_bytes_ + class_bytes(index) > most_held_bytes_) {
      held_.erase(at);
      return {};
    }
    if (is_first) held_bytes_ += class_bytes(index);
    ++at->second.hold_count;
    return make_slab(part.data(), part.size(), kHoldIndex);
  }

  Result<Slab> acquire(std::size_t size_bytes, TimePoint until) override {
    HEADRACE_TRY(check_size(size_bytes));
    MutexLock lock(mutex_);
    bool in_time = true;
    while (true) {
      Slab slab = take(size_bytes, class_of(size_bytes));
      if (slab) return slab;
      if (!in_time) return Status(Code::kDeadline, no_room(size_bytes));
      ++waiter_count_;
      in_time = lock.wait_until(room_, until);
      --waiter_count_;
    }
  }

  void prepare(std::size_t size_bytes, std::size_t count) override {
    if (!check_size(size_bytes).ok()) return;
    const std::uint32_t index = class_of(size_bytes);
    if (!is_single(index)) return;
    const std::uint64_t bytes = class_bytes(index);
    MutexLock lock(mutex_);
    SizeClass& c = classes_[index];
    c.last_use = ++use_count_;  // So that make_room() takes those of all other classes first.
    while (c.slab_count < count && used_bytes() + (c.warm.size() + 1) * bytes <= limit_bytes_) {
      make_room(bytes);
      std::byte* const slab = take_huge(index);
      if (slab == nullptr) return;
      commit(bytes);
      // Behind those that have their pages.
      c.warm.insert(c.warm.begin(), slab);
      toucher_.touch({slab, size_bytes});
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

  /// `first_class`: 0, or kClassCount for a shared one.
  Result<Slab> try_take(std::size_t size_bytes, std::uint32_t first_class) {
    HEADRACE_TRY(check_size(size_bytes));
    MutexLock lock(mutex_);
    Slab slab = take(size_bytes, first_class + class_of(size_bytes));
    if (!slab) return Status(Code::kExhausted, no_room(size_bytes));
    return slab;
  }

  /// A slab of the class, or an empty one when there is no room.
  Slab take(std::size_t size_bytes, std::uint32_t index) HEADRACE_REQUIRES(mutex_) {
    SizeClass& c = classes_[index];
    const std::uint64_t bytes = class_bytes(index);
    if (used_bytes() + bytes > limit_bytes_) return {};
    if (c.warm.empty() && !is_single(index) && c.cold.empty()) add_whole_span(index);
    std::byte* slab = nullptr;
    if (!c.warm.empty()) {
      slab = c.warm.back();
      c.warm.pop_back();
      used_bytes_.store(used_bytes() + bytes, std::memory_order_relaxed);
    } else {
      make_room(bytes);
      slab = take_fresh(index);
      // Addresses may lack before memory does (ulimit -v): those of free slabs come first.
      if (slab == nullptr && unmap_free()) slab = take_fresh(index);
      if (slab == nullptr) return {};
      count(bytes);
      // Not spans: nobody knows how much of one will be used.
      if (is_single(index) && !is_shared(index)) toucher_.touch({slab, size_bytes});
    }
    c.last_use = ++use_count_;
    return make_slab(slab, size_bytes, index);
  }

  std::byte* take_fresh(std::uint32_t index) HEADRACE_REQUIRES(mutex_) {
    if (is_shared(index)) return take_shared(index);
    return is_single(index) ? take_huge(index) : take_cold(index);
  }

  /// Gives up all free slabs that are mapped by themselves; false when there are none.
  bool unmap_free() HEADRACE_REQUIRES(mutex_) {
    bool any = false;
    for (std::uint32_t i = class_of(kHugePageBytes); i < kAllClassCount; ++i) {
      while (!classes_[i].warm.empty()) {
        drop_warm(i);
        any = true;
      }
    }
    return any;
  }

  /// Gives one free slab's memory back to the system.
  void drop_warm(std::uint32_t index) HEADRACE_REQUIRES(mutex_) {
    SizeClass& c = classes_[index];
    std::byte* const slab = c.warm.back();
    c.warm.pop_back();
    if (is_shared(index)) {
      shared_.unmap(slab);
      --c.slab_count;
    } else if (is_single(index)) {
      toucher_.forget(slab, class_bytes(index));
      // Addresses go with the memory: so those of all classes together stay near the limit.
      HEADRACE_CHECK(::munmap(slab, class_pitch_bytes(index)) == 0);
      --c.slab_count;
    } else {
      end_whole(slab);
      HEADRACE_CHECK(::madvise(slab, class_bytes(index), MADV_DONTNEED) == 0);
      c.cold.push_back(slab);
    }
    committed_bytes_.store(committed_bytes() - class_bytes(index), std::memory_order_relaxed);
  }

  /// Counts memory that was not committed before.
  void commit(std::uint64_t bytes) HEADRACE_REQUIRES(mutex_) {
    const std::uint64_t committed = committed_bytes() + bytes;
    HEADRACE_CHECK(committed <= room_bytes());
    committed_bytes_.store(committed, std::memory_order_relaxed);
    peak_bytes_.store(std::max(peak_bytes(), committed), std::memory_order_relaxed);
  }
  /// The same of memory that is handed out.
  void count(std::uint64_t bytes) HEADRACE_REQUIRES(mutex_) {
    commit(bytes);
    used_bytes_.store(used_bytes() + bytes, std::memory_order_relaxed);
  }

  /// Gives back the memory of free slabs, least recently used class first, until `bytes` more fit.
  /// The system call is made under the lock on purpose: so try_acquire() fails only when the slabs
  /// *in use* leave no room, which the caller can reason about. It happens when the mix of sizes
  /// changes, not at steady state.
  void make_room(std::uint64_t bytes) HEADRACE_REQUIRES(mutex_) {
    while (committed_bytes() + bytes > room_bytes()) {
      std::uint32_t oldest = kAllClassCount;
      for (std::uint32_t i = 0; i < kAllClassCount; ++i) {
        if (classes_[i].warm.empty()) continue;
        if (oldest == kAllClassCount || classes_[i].last_use < classes_[oldest].last_use)
          oldest = i;
      }
      // committed = used + orphans + warm, and what is not warm fits.
      HEADRACE_CHECK(oldest < kAllClassCount);
      drop_warm(oldest);
    }
  }

  /// A slab of a class below 2 MiB that has addresses but no memory; null when there are none.
  std::byte* take_cold(std::uint32_t index) HEADRACE_REQUIRES(mutex_) {
    SizeClass& c = classes_[index];
    if (c.cold.empty()) add_cold(index);
    if (c.cold.empty()) return nullptr;
    std::byte* const slab = c.cold.back();
    c.cold.pop_back();
    return slab;
  }

  /// More slabs of a class below 2 MiB, without memory and never with huge pages: where the
  /// system's default is "always", touching one of them would make 2 MiB resident.
  void add_cold(std::uint32_t index) HEADRACE_REQUIRES(mutex_) {
    add_span(index, kHugePageBytes, /*is_whole=*/false, classes_[index].cold);
  }

  /// More slabs of a class below 2 MiB, warm at once, where there is plenty of room.
  void add_whole_span(std::uint32_t index) HEADRACE_REQUIRES(mutex_) {
    const std::uint64_t size_bytes = span_bytes(index);
    if (size_bytes > (room_bytes() - committed_bytes()) / kWholeShare) return;
    if (add_span(index, size_bytes, /*is_whole=*/true, classes_[index].warm)) commit(size_bytes);
  }

  bool add_span(std::uint32_t index, std::uint64_t size_bytes, bool is_whole,
                std::vector<std::byte*>& slabs) HEADRACE_REQUIRES(mutex_) {
    std::byte* const base = map_aligned(size_bytes);
    if (base == nullptr) return false;
    // Failure (a kernel without huge pages) only costs speed.
    static_cast<void>(::madvise(base, size_bytes, is_whole ? MADV_HUGEPAGE : MADV_NOHUGEPAGE));
    spans_.emplace(base, Span{size_bytes, is_whole});
    const std::uint64_t bytes = class_bytes(index);
    const std::size_t added = size_bytes / bytes;
    expect(classes_[index], added);
    for (std::size_t i = added; i > 0; --i) slabs.push_back(base + (i - 1) * bytes);
    return true;
  }

  /// Of the span that `slab` lies in: from now on its slabs come and go one by one.
  void end_whole(const std::byte* slab) HEADRACE_REQUIRES(mutex_) {
    const auto it = std::prev(spans_.upper_bound(const_cast<std::byte*>(slab)));
    Span& span = it->second;
    if (!std::exchange(span.is_whole, false)) return;
    // Else the kernel might join the pages again, and give back what lies between slabs in use.
    static_cast<void>(::madvise(it->first, span.size_bytes, MADV_NOHUGEPAGE));
  }

  /// A slab of 2 MiB or more, mapped by itself; null when the system refuses.
  std::byte* take_huge(std::uint32_t index) HEADRACE_REQUIRES(mutex_) {
    const std::uint64_t pitch_bytes = class_pitch_bytes(index);
    std::byte* const base = region_.take(pitch_bytes);
    if (base == nullptr) return nullptr;
    // 2.5, 3, 3.5, 5 and 7 MiB: huge pages for what they cover completely, small ones for the
    // rest.
    const std::uint64_t huge_bytes = class_bytes(index) / kHugePageBytes * kHugePageBytes;
    if (huge_bytes < pitch_bytes) {
      static_cast<void>(::madvise(base + huge_bytes, pitch_bytes - huge_bytes, MADV_NOHUGEPAGE));
    }
    expect(classes_[index], 1);
    return base;
  }

  std::byte* take_shared(std::uint32_t index) HEADRACE_REQUIRES(mutex_) {
    std::byte* const slab = shared_.map(index - kClassCount);
    if (slab != nullptr) expect(classes_[index], 1);
    return slab;
  }

  /// Makes room in the lists for `added` more slabs, so that release() never allocates.
  static void expect(SizeClass& c, std::size_t added) {
    c.slab_count += added;
    if (c.warm.capacity() >= c.slab_count) return;
    c.warm.reserve(c.slab_count * 2);
    c.cold.reserve(c.slab_count * 2);
  }

  void release(std::byte* data, std::uint32_t class_index) noexcept override {
    MutexLock lock(mutex_);
    if (class_index == kHoldIndex) {
      end_hold(data);
    } else {
      used_bytes_.store(used_bytes() - class_bytes(class_index), std::memory_order_relaxed);
      const auto held = held_.find(data);
      if (held != held_.end()) {
        held->second.is_orphan = true;
      } else {
        take_back(data, class_index);
      }
    }
    // Under the lock: the acquire() that this ends may be the last act before the pool is
    // destroyed.
    if (waiter_count_ > 0) room_.notify_all();
  }

  /// `data`: of the part that was held.
  void end_hold(std::byte* data) noexcept HEADRACE_REQUIRES(mutex_) {
    const auto at = std::prev(held_.upper_bound(data));
    const HeldSlab& slab = at->second;
    if (--at->second.hold_count > 0) return;
    held_bytes_ -= class_bytes(slab.class_index);
    if (slab.is_orphan) take_back(at->first, slab.class_index);
    held_.erase(at);
    make_room(0);
  }

  void take_back(std::byte* data, std::uint32_t class_index) noexcept HEADRACE_REQUIRES(mutex_) {
    if (data != nullptr) {
      classes_[class_index].warm.push_back(data);
    } else {  // Reserved only.
      committed_bytes_.store(committed_bytes() - class_bytes(class_index),
                             std::memory_order_relaxed);
    }
  }

  void wait_for_holds() {
    MutexLock lock(mutex_);
    ++waiter_count_;
    while (!held_.empty()) lock.wait(room_);
  }

  /// What may be committed. Room for holds that nobody has is nobody's: who lends it counts it
  /// against something else meanwhile.
  std::uint64_t room_bytes() const noexcept HEADRACE_REQUIRES(mutex_) {
    return limit_bytes_ + held_bytes_;
  }

  const std::uint64_t limit_bytes_;
  const std::uint64_t most_held_bytes_;
  mutable Mutex mutex_;
  std::condition_variable room_;
  mem::SharedFile shared_ HEADRACE_GUARDED_BY(mutex_);
  mem::PageToucher toucher_;
  mem::AddressRegion region_ HEADRACE_GUARDED_BY(mutex_);  ///< Of slabs that are mapped singly.
  std::array<SizeClass, kAllClassCount> classes_ HEADRACE_GUARDED_BY(mutex_);
  std::map<std::byte*, Span> spans_ HEADRACE_GUARDED_BY(mutex_);     ///< By their base.
  std::map<std::byte*, HeldSlab> held_ HEADRACE_GUARDED_BY(mutex_);  ///< By their base.
  std::uint64_t held_bytes_ HEADRACE_GUARDED_BY(mutex_) = 0;         ///< Of those in held_.
  std::uint64_t use_count_ HEADRACE_GUARDED_BY(mutex_) = 0;
  std::uint32_t waiter_count_ HEADRACE_GUARDED_BY(mutex_) = 0;
  std::atomic<std::uint64_t> used_bytes_{0};
  std::atomic<std::uint64_t> committed_bytes_{0};
  std::atomic<std::uint64_t> peak_bytes_{0};
};

}  // namespace

std::uint64_t charged_bytes_of(const Slab& slab) noexcept {
  return SlabPool::charged_bytes(slab.size_bytes());
}

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
  return std::unique_ptr<SlabPool>(std::make_unique<PoolImpl>(options));
}

}  // namespace headrace
