#pragma once
/// \file
/// MemcachedCache: extents in memcached servers.
///
/// Where an extent lies follows from its key and the servers' names (rendezvous hashing); all of it
/// lies with one server. One thread serves all connections.
///
/// Threads: as RemoteCache.
#include <memory>
#include <string>
#include <vector>

#include "headrace/cluster_cache.h"
#include "headrace/status.h"
#include "tier/remote_cache.h"

namespace headrace::tier {

/// Errors: kInvalidArgument (options), kExhausted (descriptors, a thread).
Result<std::unique_ptr<RemoteCache>> open_memcached(const MemcachedOptions& options);

/// Which of the nodes an extent lies with. The order of the names does not matter; of those that
/// stay when one goes, none gets or loses extents of another. Pure. \pre !nodes.empty()
std::size_t node_of(const ExtentName& extent, const std::vector<std::string>& nodes);

}  // namespace headrace::tier
