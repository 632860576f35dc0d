#pragma once
/// \file
/// What reading and writing files of extents share: parts of a file that lie apart in memory, and
/// the way past the page cache.
///
/// Threads: functions; any.
#include <fcntl.h>
#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "tier/extent_header.h"

namespace headrace::tier {

/// Where bytes of a file are that follow each other in it.
using IoParts = std::array<iovec, 3>;

/// What is left of `parts` when `count` bytes of them are done.
inline std::span<iovec> skip(std::span<iovec> parts, std::size_t count) noexcept {
  while (!parts.empty() && count >= parts.front().iov_len) {
    count -= parts.front().iov_len;
    parts = parts.subspan(1);
  }
  if (parts.empty()) return parts;
  parts.front().iov_base = static_cast<std::byte*>(parts.front().iov_base) + count;
  parts.front().iov_len -= count;
  return parts;
}

inline bool is_at_page(const void* address) noexcept {
  return reinterpret_cast<std::uintptr_t>(address) % kHeaderBytes == 0;
}

inline bool set_direct(int fd, bool is_direct) noexcept {
  return ::fcntl(fd, F_SETFL, is_direct ? O_DIRECT : 0) == 0;
}

}  // namespace headrace::tier
