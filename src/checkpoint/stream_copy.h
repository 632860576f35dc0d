#pragma once
/// \file
/// stream_copy(): memcpy() of what nobody reads soon.
///
/// Threads: a function.
#include <cstddef>
#include <span>

namespace headrace::checkpoint {

/// Copies `from` to `to`, past the caches where the processor can: memory is then written without
/// being read first, and what training keeps in the caches stays there. For runs of a page and
/// more. \pre They do not overlap.
void stream_copy(std::byte* to, std::span<const std::byte> from) noexcept;

}  // namespace headrace::checkpoint
