#pragma once
/// \file
/// Memory that decoding takes meanwhile: kept by the thread from one value to the next, unless it
/// became large.
///
/// Threads: each has its own.
#include <cstddef>
#include <cstdint>
#include <memory>

namespace headrace::detail {

/// Buffers that live at the same time, by what is in them.
enum class ScratchUse : std::uint8_t { kRows, kWhole, kOriented, kMiddle, kRow, kCanvas, kPlane };
inline constexpr std::size_t kScratchUses = 7;

class Scratch {
 public:
  /// Larger ones go back at the end of a value: a thread that met one huge image would hold it.
  static constexpr std::size_t kMostKeptBytes = std::size_t{8} << 20;

  /// At least `size_bytes` bytes, of any content; nullptr when the system refuses them. Valid until
  /// the same use is asked for again, or trim().
  std::uint8_t* take(ScratchUse use, std::size_t size_bytes) noexcept;
  /// Frees all where it is more than kMostKeptBytes.
  void trim() noexcept;
  std::size_t size_bytes() const noexcept;

 private:
  struct Buffer {
    std::unique_ptr<std::uint8_t[]> memory;
    std::size_t size_bytes = 0;
  };
  Buffer buffers_[kScratchUses];
};

/// The calling thread's.
Scratch& thread_scratch() noexcept;

}  // namespace headrace::detail
