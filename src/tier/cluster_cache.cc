#include "headrace/cluster_cache.h"

#include <map>
#include <utility>

#include "base/mutex.h"
#include "tier/cache_store.h"
#include "tier/memcached.h"
#include "tier/remote_tier.h"

namespace headrace {
namespace {

using tier::RemoteCache;
using tier::RemoteTier;

/// The caches of this process by what names them: each has its connections once.
struct Registry {
  Mutex mutex;
  std::map<std::string, std::weak_ptr<RemoteTier>> tiers HEADRACE_GUARDED_BY(mutex);
};
Registry& registry() {
  static Registry* const all = new Registry;  // Threads may outlive static destructors.
  return *all;
}

std::string name_of(const MemcachedOptions& options) {
  std::string name = "memcached " + std::to_string(options.item_bytes) + " " +
                     std::to_string(options.read_connections) + " " +
                     std::to_string(options.timeout.count());
  for (const std::string& node : options.nodes) name += " " + node;
  return name;
}

Result<std::shared_ptr<RemoteTier>> open_tier(const ClusterCacheOptions& options) {
  Registry& all = registry();
  MutexLock lock(all.mutex);
  std::weak_ptr<RemoteTier>& known = all.tiers[name_of(options.engine)];
  if (auto tier = known.lock()) {
    tier->allow_buffers(options.buffer_bytes);
    return tier;
  }
  HEADRACE_TRY_ASSIGN(auto engine, tier::open_memcached(options.engine));
  HEADRACE_TRY_ASSIGN(
      auto tier,
      RemoteTier::create(std::move(engine), {.buffer_bytes = options.buffer_bytes,
                                             .least_unnamed_bytes = options.least_unnamed_bytes,
                                             .clock = options.clock}));
  known = tier;
  return tier;
}

}  // namespace

Result<std::unique_ptr<Store>> read_through_cluster(std::unique_ptr<Store> inner,
                                                    const ClusterCacheOptions& options,
                                                    std::size_t accept_limit) {
  if (inner->url().starts_with("memory:")) {
    return Status(Code::kInvalidArgument,
                  inner->url() +
                      ": only this process has these objects, others have different ones of the "
                      "same name: no cache of a cluster for it");
  }
  HEADRACE_TRY_ASSIGN(auto tier, open_tier(options));
  return tier::wrap_tier(std::move(inner), std::move(tier), accept_limit);
}

}  // namespace headrace
