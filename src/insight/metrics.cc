#include "headrace/metrics.h"

#include <algorithm>
#include <unordered_map>

namespace headrace {

MetricList sum_of(const MetricList& all) {
  MetricList sums;
  std::unordered_map<std::string_view, std::size_t> places;  // Views of `all`.
  for (const Metric& metric : all) {
    const auto [found, is_new] = places.try_emplace(metric.name, sums.size());
    if (is_new) {
      sums.push_back(metric);
      continue;
    }
    double& value = sums[found->second].value;
    value =
        metric.kind == MetricKind::kQuantile ? std::max(value, metric.value) : value + metric.value;
  }
  return sums;
}

}  // namespace headrace
