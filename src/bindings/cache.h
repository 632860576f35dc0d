#pragma once
/// \file
/// The Python classes _native.Cache, _native.ValueCache, _native.Fill and _native.ReadTrace, for
/// the other files here that use them.
#include <memory>

#include "bind.h"
#include "headrace/fill_cache.h"
#include "headrace/simulate_cache.h"
#include "headrace/value_cache.h"
#include "process.h"

namespace headrace {

struct PyCache {
  Guarded<Cache> cache;
};

struct PyValueCache {
  std::shared_ptr<ValueCache> values;
};

/// Something that fills a cache in the background.
struct PyFill {
  Guarded<BackgroundFill> fill;
};

/// The reads of a run, for simulations.
struct PyReadTrace {
  std::shared_ptr<const ReadTrace> trace;
};

}  // namespace headrace
