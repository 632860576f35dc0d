#pragma once
/// \file
/// Addresses for large slabs, asked of the system for many at a time.
///
/// Each change of what is mapped takes the kernel's lock of the address space for itself, and so
/// waits for the page that another thread is getting meanwhile: 1 to 2 ms for 2 MiB, where a
/// virtual machine's host has taken memory back. With four such calls a slab, whoever asked for
/// 1,024 slabs of 2 MiB at once waited for all of their pages (2.1 s).
///
/// Threads: one at a time.
#include <cstddef>
#include <cstdint>

namespace headrace::mem {

/// Accessible addresses that begin on a huge page; null when the system refuses. NORESERVE: nothing
/// is counted as memory before it is touched, where overcommit is on. Whoever asks unmaps them.
std::byte* map_aligned(std::uint64_t size_bytes) noexcept;

class AddressRegion {
 public:
  AddressRegion() = default;
  AddressRegion(const AddressRegion&) = delete;
  AddressRegion& operator=(const AddressRegion&) = delete;
  /// What was taken stays.
  ~AddressRegion() { give_up(); }

  /// As map_aligned(), and marked for huge pages. As many addresses as were taken before are mapped
  /// beyond these, 256 MiB at most, unless the system refuses. \pre size_bytes is a multiple of 2
  /// MiB.
  std::byte* take(std::uint64_t size_bytes) noexcept;

  /// Unmaps what nobody has taken.
  void give_up() noexcept;

 private:
  bool map(std::uint64_t size_bytes) noexcept;

  std::byte* next_ = nullptr;
  std::uint64_t left_bytes_ = 0;
  std::uint64_t taken_bytes_ = 0;
};

}  // namespace headrace::mem
