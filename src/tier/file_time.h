#pragma once
/// \file
/// Times of files as one number.
#include <cstdint>
#include <ctime>

namespace headrace::tier {

/// Nanoseconds since 1970.
inline std::int64_t nanoseconds(const timespec& time) noexcept {
  return std::int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

}  // namespace headrace::tier
