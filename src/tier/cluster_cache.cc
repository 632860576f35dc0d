#include "headrace/cluster_cache.h"

#include <xxhash.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
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
/// The caches of this process (per_process()) by name_of(): each has its connections once.
struct Registry {
  Mutex mutex;
  std::map<std::string, Known> tiers HEADRACE_GUARDED_BY(mutex);
};

/// Texts that come after one another are told apart by their lengths.
class Name {
 public:
  Name& add(std::string_view text) {
    text_ += std::to_string(text.size()) + ' ';
    text_ += text;
    return *this;
  }
  Name& add(std::uint64_t number) { return add(std::to_string(number)); }
  /// A hash of it: the registry lasts as long as the process, and secrets have no place in it.
  std::string hash() const {
    const XXH128_hash_t hash = XXH3_128bits(text_.data(), text_.size());
    return std::to_string(hash.high64) + ' ' + std::to_string(hash.low64);
  }

 private:
  std::string text_;
};

std::string name_of(const MemcachedOptions& options) {
  Name name;
  name.add("memcached").add(options.item_bytes).add(options.read_connections);
  name.add(static_cast<std::uint64_t>(options.timeout.count()));
  for (const std::string& node : options.nodes) name.add(node);
  return name.hash();
}

/// Whether stores find endpoints, credentials or certificates by it.
bool is_for_stores(std::string_view variable) noexcept {
  constexpr std::array kBeginnings = {
      "AWS_", "AZURE_", "CLOUDSDK_", "GCE_",      "GOOGLE_",
      "GS_",  "HOME",   "IDENTITY_", "SSL_CERT_", "STORAGE_EMULATOR_"};
  return variable.ends_with("_PROXY") || variable.ends_with("_proxy") ||
         std::any_of(kBeginnings.begin(), kBeginnings.end(),
                     [&](const char* beginning) { return variable.starts_with(beginning); });
}

/// Whom it asks, as whom, and what it believes of the answers.
std::string name_of(const HotStoreOptions& options) {
  const StoreOptions& store = options.store;
  Name name;
  name.add("store").add(store.url).add(store.endpoint).add(store.region).add(store.anonymous);
  name.add(store.path_style.has_value()).add(store.path_style.value_or(false));
  name.add(store.tls_verify).add(store.ca_bundle).add(store.proxy).add(store.trusted_hosts);
  name.add(store.requester_pays).add(store.verify_checksums);
  name.add(static_cast<std::uint64_t>(options.timeout.count()));
  for (const auto& [variable, value] : options.environment.variables) {
    if (is_for_stores(variable)) name.add(variable).add(value);
  }
  return name.hash();
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
  if (!inner->local_directory().empty()) {
    return Status(Code::kInvalidArgument,
                  inner->url() +
                      ": other machines may have other files at this path: no cache of a cluster "
                      "for it, a directory will do");
  }
  HEADRACE_TRY_ASSIGN(auto tier, open_tier(options, *inner));
  return tier::wrap_tier(std::move(inner), std::move(tier), accept_limit);
}

}  // namespace headrace
