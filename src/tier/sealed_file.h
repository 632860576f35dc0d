#pragma once
/// \file
/// The file of an extent in memory, for tests.
#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <memory>
#include <span>

#include "tier/extent_file.h"

namespace headrace::tier {

/// As publish_extent() wants it.
class SealedFile {
 public:
  SealedFile(const ExtentInfo& info, std::span<const std::byte> data, const SealKey* key = nullptr)
      : bytes_(static_cast<std::byte*>(std::aligned_alloc(kHeaderBytes, file_bytes(info.name)))) {
    std::copy(data.begin(), data.end(), bytes_.get() + kHeaderBytes);
    seal_extent(info, {bytes_.get(), file_bytes(info.name)}, key);
    size_ = file_bytes(info.name);
  }
  std::span<const std::byte> bytes() const { return {bytes_.get(), size_}; }

 private:
  struct Free {
    void operator()(std::byte* bytes) const noexcept { std::free(bytes); }
  };
  std::unique_ptr<std::byte, Free> bytes_;
  std::size_t size_ = 0;
};

}  // namespace headrace::tier
