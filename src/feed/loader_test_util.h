#pragma once
/// \file
/// For tests of the loader: a deadline that only a hang reaches, its counters, and old states.
#include <gtest/gtest.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <string>
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

/// A state of a FakeDataset's loader as version 1 wrote it: no checksum, and a fingerprint with the
/// versions of objects. For altered states, too.
inline std::string as_version_1(const std::string& state) {
  auto json = nlohmann::ordered_json::parse(state);
  if (json["version"] == 1) return state;
  json["version"] = 1;
  json["fingerprint"] = json["fingerprint"].get<std::string>() + "-v";
  json.erase("checksum");
  return json.dump();
}

}  // namespace headrace::feed_test
