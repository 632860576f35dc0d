#pragma once
/// \file
/// A memory store that no other test sees.
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "store/memory/memory_store.h"

namespace headrace::testing {

inline std::unique_ptr<Store> own_memory_store() {
  const auto* const test = ::testing::UnitTest::GetInstance()->current_test_info();
  StoreOptions options;
  options.url = std::string("memory://") + test->test_suite_name() + "-" + test->name();
  return *open_memory_store(options);
}

}  // namespace headrace::testing
