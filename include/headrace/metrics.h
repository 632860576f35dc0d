#pragma once
/// \file
/// Snapshots of counters. Names are "area.noun_unit" ("store.received_bytes"); each is described in
/// docs/metrics.md, which a test compares with the code. A metric says itself what an exporter has
/// to know: no second table.
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace headrace {

enum class MetricKind : std::uint8_t {
  kCounter,   ///< Only grows while its owner lives.
  kGauge,     ///< A level that goes up and down.
  kQuantile,  ///< Of a histogram: the label "quantile" says which ("1": the largest).
};
/// "counter", "gauge", "quantile".
constexpr std::string_view metric_kind_name(MetricKind kind) noexcept {
  return kind == MetricKind::kCounter ? "counter"
         : kind == MetricKind::kGauge ? "gauge"
                                      : "quantile";
}

struct Metric {
  std::string name;  ///< Unique in a snapshot; what stats() calls it.
  double value = 0;  ///< In `unit`; exact for integers below 2^53.
  MetricKind kind = MetricKind::kCounter;
  std::string_view unit = {};  ///< "requests", "bytes", "us", ...; static.
  /// Name of what labels tell apart: "stall.waited_us" of "stall.first_byte_us". Empty: `name`.
  std::string family = {};
  std::vector<std::pair<std::string, std::string>> labels = {};  ///< (name, value)
};

using MetricList = std::vector<Metric>;

/// One snapshot of many with the same names: counters and gauges are added up; of a quantile the
/// largest is kept, which is no less than the true one.
MetricList sum_of(const MetricList& all);

}  // namespace headrace
