#pragma once
/// \file
/// What the two pollers share. Only src/net includes this.
#include <sys/uio.h>

#include <array>
#include <span>

#include "net/poller.h"

namespace headrace::detail {

/// A stream socket with close-on-exec, plus `extra_type_flags`; TCP_NODELAY when it is TCP. -errno
/// on failure.
int open_stream_socket(int family, int extra_type_flags) noexcept;

/// Takes `sent_bytes` off the front of the pieces.
void drop_front(std::array<iovec, 2>& pieces, std::size_t sent_bytes) noexcept;

inline iovec to_iovec(std::span<const std::byte> bytes) noexcept {
  return {const_cast<std::byte*>(bytes.data()), bytes.size()};  // iovec has no const form
}

}  // namespace headrace::detail
