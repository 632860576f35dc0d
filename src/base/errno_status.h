#pragma once
/// \file
/// From errno of file operations to what the caller can do about it. One table, tested row by row.
#include <string>

#include "headrace/status.h"

namespace headrace {

/// Code for an errno of open, read, write, rename and their like. Unknown numbers are kInternal.
Code code_of_errno(int error) noexcept;

/// "what: No such file or directory (ENOENT)".
Status errno_status(int error, std::string what);

}  // namespace headrace
