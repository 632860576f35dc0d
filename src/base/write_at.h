#pragma once
/// \file
/// pwrite() that goes on until everything is written: short counts and signals are no end.
///
/// Threads: any.
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <span>

namespace headrace {

/// Writes all of `bytes` from `offset_bytes` of a file on. Returns 0, or an errno: then some of
/// them may be there.
inline int write_all_at(int fd, std::uint64_t offset_bytes,
                        std::span<const std::byte> bytes) noexcept {
  while (!bytes.empty()) {
    const ssize_t count =
        ::pwrite(fd, bytes.data(), bytes.size(), static_cast<off_t>(offset_bytes));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return count < 0 ? errno : EIO;
    bytes = bytes.subspan(static_cast<std::size_t>(count));
    offset_bytes += static_cast<std::size_t>(count);
  }
  return 0;
}

}  // namespace headrace
