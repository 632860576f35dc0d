#pragma once
/// \file
/// Which sanitizer a test was built with: some tests do what one does not allow.
/// HEADRACE_HAS_THREAD_SANITIZER; HEADRACE_HAS_SANITIZER: that one or the address sanitizer.

#if defined(__has_feature)  // clang
#if __has_feature(thread_sanitizer)
#define HEADRACE_HAS_THREAD_SANITIZER 1
#elif __has_feature(address_sanitizer)
#define HEADRACE_HAS_SANITIZER 1
#endif
#elif defined(__SANITIZE_THREAD__)  // gcc
#define HEADRACE_HAS_THREAD_SANITIZER 1
#elif defined(__SANITIZE_ADDRESS__)
#define HEADRACE_HAS_SANITIZER 1
#endif

#if defined(HEADRACE_HAS_THREAD_SANITIZER)
#define HEADRACE_HAS_SANITIZER 1
#endif
