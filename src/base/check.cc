#include "base/check.h"

#include <cstdio>
#include <cstdlib>

namespace headrace::detail {
void check_failed(const char* condition, const char* file, int line) noexcept {
  std::fprintf(
      stderr,
      "headrace: broken invariant: %s (%s:%d). This is a bug in Headrace; please report it.\n",
      condition, file, line);
  std::abort();
}
}  // namespace headrace::detail
