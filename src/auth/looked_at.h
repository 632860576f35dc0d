#pragma once
/// \file
/// What is said where no credentials were found: everywhere that was looked at, and what to do.
///
/// Threads: pure.
#include <string>
#include <string_view>
#include <vector>

#include "headrace/status.h"

namespace headrace::auth {

/// kDenied: "WHAT. Looked at: A; B. REMEDY".
inline Status nothing_found(std::string what, const std::vector<std::string>& searched,
                            std::string_view remedy) {
  what += ". Looked at: ";
  for (std::size_t i = 0; i < searched.size(); ++i) what += (i > 0 ? "; " : "") + searched[i];
  return Status(Code::kDenied, what.append(". ").append(remedy));
}

}  // namespace headrace::auth
