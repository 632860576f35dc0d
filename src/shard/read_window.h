#pragma once
/// \file
/// ReadWindow: how many shards an index build reads at once: so many, and no more than a quarter of
/// the memory for what they hold meanwhile.
///
/// Place: builders that take up shards in order and emit them in order. Pure.
///
/// Threads: one owner.
#include <cstddef>
#include <cstdint>

namespace headrace::detail {

class ReadWindow {
 public:
  ReadWindow(std::size_t most_shards, std::uint64_t pool_limit_bytes)
      : most_shards_(most_shards), most_bytes_(pool_limit_bytes / 4) {}

  /// Whether another shard may be begun that holds `bytes`; one there always is.
  bool has_room(std::uint64_t bytes) const noexcept {
    return shards_ == 0 || (shards_ < most_shards_ && held_bytes_ + bytes <= most_bytes_);
  }
  void begin(std::uint64_t bytes) noexcept {
    ++shards_;
    held_bytes_ += bytes;
  }
  /// `bytes`: what begin() was told.
  void end(std::uint64_t bytes) noexcept {
    --shards_;
    held_bytes_ -= bytes;
  }

 private:
  const std::size_t most_shards_;
  const std::uint64_t most_bytes_;
  std::size_t shards_ = 0;  ///< Begun, and not emitted.
  std::uint64_t held_bytes_ = 0;
};

}  // namespace headrace::detail
