#include "headrace/value_cache.h"

#include <optional>
#include <utility>

#include "store/route.h"
#include "tier/cache_store.h"
#include "tier/disk_cache.h"
#include "tier/disk_values.h"

namespace headrace {
namespace {

class RoutedValues final : public ValueCache {
 public:
  explicit RoutedValues(std::vector<std::shared_ptr<ValueCache>> caches)
      : caches_(std::move(caches)) {}

  /// The least: they may be one directory.
  std::uint64_t capacity_bytes() const override {
    std::optional<std::uint64_t> least;
    for (const auto& cache : caches_) {
      if (cache == nullptr) continue;
      least = std::min(least.value_or(UINT64_MAX), cache->capacity_bytes());
    }
    return least.value_or(0);
  }
  bool read(const ValueSeries& series, std::uint32_t index, std::span<std::byte> out) override {
    ValueSeries routed = series;
    ValueCache* const cache = route(routed);
    return cache != nullptr && cache->read(routed, index, out);
  }
  void keep(const ValueSeries& series, std::uint32_t index,
            std::span<const std::byte> value) override {
    ValueSeries routed = series;
    if (ValueCache* const cache = route(routed)) cache->keep(routed, index, value);
  }
  void settle() override {
    for (const auto& cache : caches_) {
      if (cache != nullptr) cache->settle();
    }
  }

 private:
  ValueCache* route(ValueSeries& series) const {
    const auto found = parse_route(series.key, caches_.size());
    if (!found) return nullptr;
    series.key = found->key;
    return caches_[found->store].get();
  }

  const std::vector<std::shared_ptr<ValueCache>> caches_;
};

}  // namespace

Result<std::shared_ptr<ValueCache>> open_value_cache(std::shared_ptr<Cache> cache,
                                                     const Store& store) {
  auto disk = std::static_pointer_cast<tier::DiskCache>(std::move(cache));
  if (Status status = disk->check_readable(); !status.ok())
    return std::move(status).annotate("cache " + disk->directory());
  return std::shared_ptr<ValueCache>(std::make_shared<tier::DiskValues>(
      std::move(disk), tier::origin_of_kept(store), store.url()));
}

std::shared_ptr<ValueCache> route_value_caches(std::vector<std::shared_ptr<ValueCache>> caches) {
  return std::make_shared<RoutedValues>(std::move(caches));
}

}  // namespace headrace
