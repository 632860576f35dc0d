#pragma once
/// \file
/// Checks for our own bugs only, never for input. HEADRACE_CHECK is always on; HEADRACE_DCHECK in
/// developer builds.
namespace headrace::detail {
[[noreturn]] void check_failed(const char* condition, const char* file, int line) noexcept;
}
#define HEADRACE_CHECK(cond) \
  ((cond) ? static_cast<void>(0) : ::headrace::detail::check_failed(#cond, __FILE__, __LINE__))
#if defined(HEADRACE_DCHECKS)
#define HEADRACE_DCHECK(cond) HEADRACE_CHECK(cond)
#else
#define HEADRACE_DCHECK(cond) static_cast<void>(sizeof(cond))
#endif
