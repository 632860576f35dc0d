#pragma once
/// \file
/// Memory that object bytes and batches land in: one budget, slabs cut from it.
///
/// Place: src/mem/ knows nothing of network or datasets. feed/ acquires slabs, stores fill them,
/// bindings hold them while a batch is alive. The pool *is* the memory limit of promise 4: every
/// byte of data that the engine allocates comes from it.
///
/// Threads: SlabPool from any thread. A Slab belongs to one thread at a time; handing it over is a
/// move, and the queue that carries it gives the needed ordering.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "headrace/clock.h"
#include "headrace/status.h"

namespace headrace {

class Slab;

/// Where slabs go back to: the pool that they are from, or who lent a part of one (SlabLender).
class SlabOwner {
 public:
  SlabOwner(const SlabOwner&) = delete;
  SlabOwner& operator=(const SlabOwner&) = delete;

 protected:
  SlabOwner() = default;
  virtual ~SlabOwner() = default;
  friend class Slab;
  virtual void release(std::byte* data, std::uint32_t class_index) noexcept = 0;
  /// \see Slab::hold(). `part`: the bytes of that slab. By default none.
  virtual Slab hold(std::span<std::byte> part);
  /// For implementations only.
  Slab make_slab(std::byte* data, std::size_t size_bytes, std::uint32_t class_index) noexcept;
  static std::uint32_t class_index_of(const Slab& slab) noexcept;
};

/// Exclusive ownership of one contiguous piece of the budget; returns it to its owner when
/// destroyed. Invariant: `owner_ == nullptr` means empty (default-constructed or moved-from).
class Slab {
 public:
  Slab() noexcept = default;
  Slab(Slab&& o) noexcept
      : owner_(std::exchange(o.owner_, nullptr)),
        data_(o.data_),
        size_bytes_(o.size_bytes_),
        class_index_(o.class_index_) {}
  Slab& operator=(Slab&& o) noexcept {
    Slab dying(std::move(*this));
    owner_ = std::exchange(o.owner_, nullptr);
    data_ = o.data_;
    size_bytes_ = o.size_bytes_;
    class_index_ = o.class_index_;
    return *this;
  }
  ~Slab();

  explicit operator bool() const noexcept { return owner_ != nullptr; }
  /// The writable bytes, exactly as many as were asked for; page-aligned start, unless it is a part
  /// of another slab. Contents are unspecified after acquire (bytes of an earlier use). Valid until
  /// this Slab is moved from or destroyed. Empty span for an empty Slab and for one that is only
  /// reserved.
  std::span<std::byte> bytes() const noexcept {
    return owner_ != nullptr && data_ != nullptr ? std::span<std::byte>(data_, size_bytes_)
                                                 : std::span<std::byte>();
  }
  /// What was asked for, of a reserved one, too. 0 for an empty Slab.
  std::size_t size_bytes() const noexcept { return owner_ != nullptr ? size_bytes_ : 0; }
  /// Another slab over the same bytes, for somebody who reads them a little longer: the memory is
  /// free when both are gone. Whoever has this one may still change them. Empty where the owner
  /// allows none, or not as much more (SlabPool::Options::most_held_bytes).
  Slab hold() const { return owner_ != nullptr ? owner_->hold(bytes()) : Slab(); }

 private:
  friend class SlabOwner;
  Slab(SlabOwner* owner, std::byte* data, std::size_t size_bytes,
       std::uint32_t class_index) noexcept
      : owner_(owner), data_(data), size_bytes_(size_bytes), class_index_(class_index) {}
  SlabOwner* owner_ = nullptr;
  std::byte* data_ = nullptr;
  std::size_t size_bytes_ = 0;
  std::uint32_t class_index_ = 0;
};

/// What a slab counts against its pool's limit; 0 for an empty one.
std::uint64_t charged_bytes_of(const Slab& slab) noexcept;

/// Where memory lies that other processes can map.
struct SharedPlace {
  int fd =
      -1;  ///< Of the pool, open as long as it lives; all shared slabs of a pool have the same.
  std::uint64_t offset = 0;  ///< A multiple of the page.
};

/// Slabs in size classes under one hard limit.
///
/// Only slabs in use or kept for reuse have memory behind them. Before the sum of those would pass
/// the limit, free slabs of other classes give their memory back to the system (those of 2 MiB and
/// more their addresses, too), so a change of sizes can never fragment the budget. Classes are four
/// per power of two (16 KiB, 20, 24, 28, 32, 40, 48, 56, 64 KiB, ...; below that every multiple of
/// the 4 KiB page), so a slab larger than 16 KiB wastes at most 1/4 of its request, 1/9 on average.
/// Slabs of 2 MiB and more are backed by huge pages where the system allows, and so are smaller
/// ones while there is plenty of room: those are committed some MiB at a time. First touch of 4 KiB
/// pages costs 0.5 to 1.9 CPU s/GB (measured on AMD Zen 4).
class SlabPool : public SlabOwner {
 public:
  struct Options {
    /// Upper bound of memory, bytes; the sum of class sizes of all slabs with memory behind them
    /// never exceeds it. At least 64 KiB.
    std::uint64_t limit_bytes = std::uint64_t{256} << 20;
    /// On top of it: slabs of which somebody holds a part (hold_part()). What is only held still
    /// counts here and no longer against the limit, so whoever gave it back has its room.
    std::uint64_t most_held_bytes = 0;
  };

  /// Takes neither memory nor addresses. Errors: kInvalidArgument (limit too small). The pool must
  /// outlive every Slab taken from it; its destructor checks this, and waits for holds.
  static Result<std::unique_ptr<SlabPool>> create(const Options& options);
  ~SlabPool() override = default;

  /// Takes a slab of `size_bytes` (> 0) without waiting. Errors: kExhausted when the limit does not
  /// allow it now, or the system has no addresses; kInvalidArgument when it never could
  /// (`charged_bytes(size_bytes) > limit_bytes()`).
  virtual Result<Slab> try_acquire(std::size_t size_bytes) = 0;

  /// The same in memory that other processes can map (memfd). Where slabs are of one kind and were
  /// given back, those of the other may take their room. Errors: as try_acquire().
  virtual Result<Slab> try_acquire_shared(std::size_t size_bytes) = 0;
  /// Where a slab of this pool lies, as long as it is out; nullopt: not in memory that is shared.
  virtual std::optional<SharedPlace> shared_place(const Slab& slab) const = 0;

  /// Room under the limit without memory: what another allocator takes meanwhile is counted here.
  /// bytes() of such a slab has no bytes. Errors: as try_acquire().
  virtual Result<Slab> try_reserve(std::size_t size_bytes) = 0;

  /// A hold on a part of a slab of this pool. Empty: most_held_bytes does not allow it now.
  virtual Slab hold_part(const Slab& whole, std::span<std::byte> part) = 0;

  /// Waits for room, at most until `until`. Errors: kDeadline, kInvalidArgument. For callers
  /// outside the data path.
  virtual Result<Slab> acquire(std::size_t size_bytes, TimePoint until) = 0;

  /// Makes memory ready for slabs of `size_bytes` that will be taken together, so that there are
  /// `count` of them with those that are out, or as many as fit beside what is in use: a thread of
  /// the pool gives them their pages, in the order in which they are taken later. Free slabs of
  /// other sizes give way. Does nothing for sizes below 2 MiB, nor where the system has no
  /// addresses.
  virtual void prepare(std::size_t size_bytes, std::size_t count) = 0;

  /// What a slab of this size counts against the limit: its class size. Pure.
  static std::uint64_t charged_bytes(std::size_t size_bytes) noexcept;

  virtual std::uint64_t limit_bytes() const noexcept = 0;
  /// Bytes (class sizes) of slabs now handed out; not of those that are only held.
  virtual std::uint64_t used_bytes() const noexcept = 0;
  /// Bytes with memory behind them: handed out, held or kept for reuse. Never above limit_bytes()
  /// and most_held_bytes.
  virtual std::uint64_t committed_bytes() const noexcept = 0;
  /// Highest committed_bytes() so far.
  virtual std::uint64_t peak_bytes() const noexcept = 0;
};

inline Slab SlabOwner::make_slab(std::byte* data, std::size_t size_bytes,
                                 std::uint32_t class_index) noexcept {
  return Slab(this, data, size_bytes, class_index);
}

inline std::uint32_t SlabOwner::class_index_of(const Slab& slab) noexcept {
  return slab.class_index_;
}

inline Slab SlabOwner::hold(std::span<std::byte> part) {
  static_cast<void>(part);
  return {};
}

inline Slab::~Slab() {
  if (owner_) owner_->release(data_, class_index_);
}

}  // namespace headrace
