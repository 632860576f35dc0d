#pragma once
/// \file
/// For tests of the loader: a deadline that only a hang reaches, its counters, runs with faults,
/// and old states.
#include <gtest/gtest.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

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

/// The first id of each batch until the epoch, or `most_failures`, are over. After a failure, which
/// must be kUnavailable, the loader goes on from its state.
inline std::vector<std::int64_t> first_ids_despite_errors(Loader& loader, int most_failures) {
  std::vector<std::int64_t> ids;
  for (int failures = 0; failures < most_failures;) {
    auto batch = loader.next(soon());
    if (!batch) {
      EXPECT_EQ(batch.error().code(), Code::kUnavailable) << batch.error().message();
      EXPECT_TRUE(loader.load_state(loader.state()).ok());
      if (::testing::Test::HasFailure()) break;
      ++failures;
      continue;
    }
    if (!*batch) break;
    ids.push_back((*batch)->ids()[0]);
  }
  return ids;
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
