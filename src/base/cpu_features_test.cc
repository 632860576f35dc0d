#include "base/cpu_features.h"

#include <gtest/gtest.h>

#include <fstream>
#include <set>
#include <sstream>
#include <string>

namespace headrace {
namespace {

/// What the kernel says of the first processor.
std::set<std::string> kernel_flags() {
  std::ifstream file("/proc/cpuinfo");
  std::set<std::string> out;
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("flags")) continue;
    std::istringstream words(line.substr(line.find(':') + 1));
    for (std::string word; words >> word;) out.insert(word);
    break;
  }
  return out;
}

TEST(CpuFeatures, AreThoseThatTheKernelNames) {
  const std::set<std::string> flags = kernel_flags();
#if defined(__x86_64__)
  ASSERT_FALSE(flags.empty());
#endif
  for (const auto& [feature, name] : kCpuFeatures)
    EXPECT_EQ(has_cpu_feature(feature), flags.contains(std::string(name))) << name;
}

}  // namespace
}  // namespace headrace
