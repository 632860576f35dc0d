#pragma once
/// \file
/// For tests of the loader: a deadline that only a hang reaches, and its counters.
#include <gtest/gtest.h>

#include <chrono>
#include <string_view>

#include "headrace/loader.h"

namespace headrace::feed_test {

inline TimePoint soon() { return std::chrono::steady_clock::now() + std::chrono::seconds(200); }

inline double value_of(const Loader& loader, std::string_view name) {
  for (const Metric& metric : loader.stats()) {
    if (metric.name == name) return metric.value;
  }
  ADD_FAILURE() << name;
  return 0;
}

}  // namespace headrace::feed_test
