#pragma once
/// \file
/// What the C library calls its error numbers. As glibc's strerrorname_np() and strerrordesc_np(),
/// which glibc has only since 2.32; wheels run on 2.28.

namespace headrace {

/// "ENOSPC"; nullptr for a number that Linux does not have. Static text.
const char* errno_name(int error) noexcept;

/// "No space left on device", in English whatever the locale; nullptr for a number that Linux does
/// not have. The text lives until the thread calls again.
const char* errno_text(int error) noexcept;

}  // namespace headrace
