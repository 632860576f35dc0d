#pragma once
/// \file
/// Memory for large random access: asks the kernel for huge pages, as thousands of open places on
/// small ones would miss the TLB at every step. Uninitialised; where there are no huge pages, it is
/// plain memory.
///
/// Place: src/order/mosaic. One owner.
#include <sys/mman.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>
#include <new>
#include <type_traits>

namespace headrace::mosaic {

template <class T>
class HugeArray {
  static_assert(std::is_trivially_copyable_v<T> && std::is_trivially_destructible_v<T>);

 public:
  HugeArray() = default;
  std::size_t size() const noexcept { return size_; }
  T& operator[](std::size_t i) noexcept { return data_.get()[i]; }
  const T& operator[](std::size_t i) const noexcept { return data_.get()[i]; }

  /// Keeps what is there; new elements are undefined. Invalidates references.
  void grow(std::size_t size) {
    if (size <= size_) return;
    const std::size_t bytes = (size * sizeof(T) + kHugePage - 1) / kHugePage * kHugePage;
    std::unique_ptr<T, Free> bigger(
        static_cast<T*>(::operator new (bytes, std::align_val_t{kHugePage})));
    // A hint; without it the pages are small.
    static_cast<void>(::madvise(bigger.get(), bytes, MADV_HUGEPAGE));
    if (size_ != 0) std::memcpy(static_cast<void*>(bigger.get()), data_.get(), size_ * sizeof(T));
    data_ = std::move(bigger);
    size_ = size;
  }

 private:
  static constexpr std::size_t kHugePage = std::size_t{2} << 20;  // x86-64, and arm64 by default
  struct Free {
    void operator()(T* data) const noexcept {
      ::operator delete (static_cast<void*>(data), std::align_val_t{kHugePage});
    }
  };
  std::unique_ptr<T, Free> data_;
  std::size_t size_ = 0;
};

}  // namespace headrace::mosaic
