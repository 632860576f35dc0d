#pragma once
/// \file
/// Metrics as Python takes them: tuples (name, value, kind, unit, family, labels).
#include <string>

#include "bind.h"
#include "headrace/metrics.h"

namespace headrace {

/// \pre the GIL is held.
inline nb::list make_metrics(const MetricList& metrics) {
  const auto text = [](std::string_view view) { return nb::str(view.data(), view.size()); };
  nb::list out;
  for (const Metric& metric : metrics) {
    nb::dict labels;
    for (const auto& [name, value] : metric.labels) labels[text(name)] = text(value);
    out.append(nb::make_tuple(text(metric.name), metric.value, text(metric_kind_name(metric.kind)),
                              text(metric.unit),
                              text(metric.family.empty() ? metric.name : metric.family), labels));
  }
  return out;
}

}  // namespace headrace
