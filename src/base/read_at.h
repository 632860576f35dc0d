#pragma once
/// \file
/// pread() that goes on until it has everything: short counts and signals are no end.
///
/// Threads: any.
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <span>

namespace headrace {

/// Fills `out` with the bytes of a file from `offset_bytes` on. Returns how many came, fewer only
/// where the file ends; or -errno.
inline std::int64_t read_at(int fd, std::uint64_t offset_bytes, std::span<std::byte> out) noexcept {
  std::size_t done = 0;
  while (done < out.size()) {
    const ssize_t count =
        ::pread(fd, out.data() + done, out.size() - done, static_cast<off_t>(offset_bytes + done));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return -static_cast<std::int64_t>(errno);
    if (count == 0) break;
    done += static_cast<std::size_t>(count);
  }
  return static_cast<std::int64_t>(done);
}

/// False when the file ends before, or cannot be read.
inline bool read_all_at(int fd, std::uint64_t offset_bytes, std::span<std::byte> out) noexcept {
  return read_at(fd, offset_bytes, out) == static_cast<std::int64_t>(out.size());
}

}  // namespace headrace
