#include "headrace/cluster_cache.h"

#include <map>
#include <string>
#include <utility>
#include <variant>

#include "base/mutex.h"
#include "base/per_process.h"
#include "tier/cache_store.h"
#include "tier/memcached.h"
#include "tier/remote_tier.h"
#include "tier/store_cache.h"

namespace headrace {
namespace {

using tier::RemoteCache;
using tier::RemoteTier;

/// A hot store that takes longer for a read, or fails twice, is no hot store.
constexpr int kHotPatience = 10;
constexpr std::uint32_t kHotAttempts = 2;

struct Known {
  std::weak_ptr<RemoteTier> tier;
  std::string url, origin;  // Of a hot store.
};
/// The caches of this process (per_process()) by what names them: each has its connections once.
struct Registry {
  Mutex mutex;
  std::map<std::string, Known> tiers HEADRACE_GUARDED_BY(mutex);
};

std::string name_of(const MemcachedOptions& options) {
  std::string name = "memcached " + std::to_string(options.item_bytes) + " " +
                     std::to_string(options.read_connections) + " " +
                     std::to_string(options.timeout.count());
  for (const std::string& node : options.nodes) name += " " + node;
  return name;
}

std::string name_of(const HotStoreOptions& options) {
  std::string name = "store " + options.store.url + " " + options.store.endpoint + " " +
                     options.store.region + " " + std::to_string(options.timeout.count());
  for (const char* variable : {"AWS_ACCESS_KEY_ID", "AWS_PROFILE", "AWS_ENDPOINT_URL"}) {
    const auto found = options.environment.variables.find(variable);
    name += " " + (found != options.environment.variables.end() ? found->second : std::string());
  }
  return name;
}

Result<std::unique_ptr<Store>> open_hot(const HotStoreOptions& options) {
  StoreOptions own = options.store;
  own.connect_timeout = own.first_byte_timeout = own.progress_timeout = options.timeout;
  own.default_timeout = kHotPatience * options.timeout;
  own.max_attempts = kHotAttempts;
  return open_store(own, options.environment);
}

/// Opens what is not open yet. \pre the registry's lock is held
Status open_known(const ClusterCacheOptions& options, Known& known,
                  std::shared_ptr<RemoteTier>& tier) {
  std::unique_ptr<RemoteCache> engine;
  if (const auto* servers = std::get_if<MemcachedOptions>(&options.engine)) {
    HEADRACE_TRY_ASSIGN(engine, tier::open_memcached(*servers));
  } else {
    HEADRACE_TRY_ASSIGN(auto hot, open_hot(std::get<HotStoreOptions>(options.engine)));
    known.url = hot->url();
    known.origin = hot->origin();
    HEADRACE_TRY_ASSIGN(engine, tier::open_store_cache(std::move(hot), options.buffer_bytes));
  }
  HEADRACE_TRY_ASSIGN(tier, RemoteTier::create(std::move(engine),
                                               {.buffer_bytes = options.buffer_bytes,
                                                .least_unnamed_bytes = options.least_unnamed_bytes,
                                                .clock = options.clock}));
  known.tier = tier;
  return {};
}

/// What lies in what is cached would be taken for data.
Status check_apart(const Known& known, const Store& inner) {
  const bool is_inside = (known.url + "/").starts_with(inner.url() + "/");
  if (!is_inside || known.origin != inner.origin()) return {};
  return Status(Code::kInvalidArgument,
                "cache " + known.url + " lies inside " + inner.url() +
                    ", whose objects it is to keep: give it a bucket or a prefix of its own");
}

Result<std::shared_ptr<RemoteTier>> open_tier(const ClusterCacheOptions& options,
                                              const Store& inner) {
  const std::string name =
      std::visit([](const auto& engine) { return name_of(engine); }, options.engine);
  auto& all = per_process<Registry>();
  MutexLock lock(all.mutex);
  Known& known = all.tiers[name];
  std::shared_ptr<RemoteTier> tier = known.tier.lock();
  if (tier == nullptr) HEADRACE_TRY(open_known(options, known, tier));
  HEADRACE_TRY(check_apart(known, inner));
  tier->allow_buffers(options.buffer_bytes);
  return tier;
}

}  // namespace

std::uint64_t memory_of(const ClusterCacheOptions& options) noexcept {
  const bool reads_by_copy = std::holds_alternative<HotStoreOptions>(options.engine);
  return options.buffer_bytes * (reads_by_copy ? 2 : 1);
}

Result<std::unique_ptr<Store>> read_through_cluster(std::unique_ptr<Store> inner,
                                                    const ClusterCacheOptions& options,
                                                    std::size_t accept_limit) {
  if (inner->url().starts_with("memory:")) {
    return Status(Code::kInvalidArgument,
                  inner->url() +
                      ": only this process has these objects, others have different ones of the "
                      "same name: no cache of a cluster for it");
  }
  HEADRACE_TRY_ASSIGN(auto tier, open_tier(options, *inner));
  return tier::wrap_tier(std::move(inner), std::move(tier), accept_limit);
}

}  // namespace headrace
