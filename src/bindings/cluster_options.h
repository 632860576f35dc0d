#pragma once
/// \file
/// ClusterCacheOptions from what headrace/store/tiers.py makes of `cache=`.
#include <vector>

#include "bind.h"
#include "headrace/cluster_cache.h"

namespace headrace {

/// Of a list of (kind, options), the nearest first. Raises InvalidArgumentError for an unknown name
/// or a value of the wrong kind.
std::vector<ClusterCacheOptions> parse_cluster_caches(const nb::list& tiers);

}  // namespace headrace
