#pragma once
/// \file
/// Snapshots of counters. Names are "area.noun_unit" ("store.received_bytes"); each is described in
/// docs/metrics.md, which a test compares with the code.
#include <cstdint>
#include <string>
#include <vector>

namespace headrace {

struct Metric {
  std::string name;
  double value = 0;  ///< In the unit that the name ends in; exact for integers below 2^53.
};

using MetricList = std::vector<Metric>;

}  // namespace headrace
