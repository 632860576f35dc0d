#include "tier/versions.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "base/limit_addresses.h"
#include "base/sanitizer.h"

namespace headrace::tier {
namespace {

#if !defined(HEADRACE_HAS_SANITIZER)
TEST(VersionsDeathTest, NobodyIsAskedWhereTheSystemAllowsNoThreads) {
  const auto run = [] {
    Versions versions;
    limit_addresses(1 << 20);
    ::_exit(versions.ask([] {}) ? 1 : 0);
  };
  EXPECT_EXIT(run(), testing::ExitedWithCode(0), "");
}
#endif

}  // namespace
}  // namespace headrace::tier
