#pragma once
/// \file
/// Data as other packages write it, with what they make of it, for the tests of src/shard.
#include <gtest/gtest.h>

#include <filesystem>
#include <string_view>

namespace headrace::testing {

/// A folder or file of ../shared/reference, which not every checkout has.
inline std::filesystem::path reference_path(std::string_view name = "") {
  return std::filesystem::path(HEADRACE_SOURCE_DIR) / "../shared/reference" / name;
}

/// Fixtures that are skipped without it.
template <class Base = ::testing::Test>
class ReferenceTest : public Base {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(reference_path())) GTEST_SKIP() << "no reference cases here";
  }
};

}  // namespace headrace::testing
