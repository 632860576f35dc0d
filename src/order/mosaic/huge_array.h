#pragma once
/// \file
/// Memory for large random access: asks the kernel for huge pages, as thousands of open places on
/// small ones would miss the TLB at every step. Uninitialised; where there are no huge pages, it is
/// plain memory.
///
/// Place: src/order/mosaic. One owner.
#include <sys/mman.h>

#include <cstddef>
#include <memory>
#include <new>
#include <type_traits>

namespace headrace::mosaic {

template <class T>
class HugeArray {
  static_assert(std::is_trivially_copyable_v<T> && std::is_trivially_destructible_v<T>);

 public:
  HugeArray() = default;
  explicit HugeArray(std::size_t size) : size_(size) {
    const std::size_t bytes = size * sizeof(T);
    // A small array would waste most of a huge page, and the time to clear it.
    const bool is_huge = bytes >= kHugePage / 2;
    const std::size_t unit = is_huge ? kHugePage : kAlignment;
    const std::size_t whole = (bytes + unit - 1) / unit * unit;
    data_ = std::unique_ptr<T, Free>(
        static_cast<T*>(::operator new (whole, std::align_val_t{unit})), Free{unit});
    // A hint; without it the pages are small.
    if (is_huge) static_cast<void>(::madvise(data_.get(), whole, MADV_HUGEPAGE));
  }
  std::size_t size() const noexcept { return size_; }
  T* data() noexcept { return data_.get(); }
  T& operator[](std::size_t i) noexcept { return data_.get()[i]; }
  const T& operator[](std::size_t i) const noexcept { return data_.get()[i]; }

 private:
  static constexpr std::size_t kHugePage = std::size_t{2} << 20;  // x86-64, and arm64 by default
  static constexpr std::size_t kAlignment = 4096;
  struct Free {
    std::size_t alignment = kAlignment;
    void operator()(T* data) const noexcept {
      ::operator delete (static_cast<void*>(data), std::align_val_t{alignment});
    }
  };
  std::unique_ptr<T, Free> data_;
  std::size_t size_ = 0;
};

}  // namespace headrace::mosaic
