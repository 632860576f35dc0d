#include "cluster_options.h"

#include "option_table.h"

namespace headrace {
namespace {

std::chrono::milliseconds to_milliseconds(nb::handle seconds) {
  return std::chrono::milliseconds(static_cast<std::int64_t>(nb::cast<double>(seconds) * 1e3));
}

OptionTable<MemcachedOptions> make_memcached_table() {
  return {
      {"nodes",
       [](MemcachedOptions& options, nb::handle value) {
         options.nodes = nb::cast<std::vector<std::string>>(value);
       }},
      {"item_size", plain(&MemcachedOptions::item_bytes)},
      {"connections", plain(&MemcachedOptions::read_connections)},
      {"timeout", [](MemcachedOptions& options,
                     nb::handle value) { options.timeout = to_milliseconds(value); }},
  };
}

ClusterCacheOptions parse_tier(const std::string& kind, const nb::dict& fields) {
  static const OptionTable<MemcachedOptions> kMemcached = make_memcached_table();
  ClusterCacheOptions options;
  if (kind != "memcached") raise(Status(Code::kInvalidArgument, "no cache of the kind " + kind));
  kMemcached.apply(fields, options.engine);
  return options;
}

}  // namespace

std::vector<ClusterCacheOptions> parse_cluster_caches(const nb::list& tiers) {
  std::vector<ClusterCacheOptions> all;
  for (const nb::handle row : tiers) {
    const auto [kind, fields] = nb::cast<std::tuple<std::string, nb::dict>>(row);
    all.push_back(parse_tier(kind, fields));
  }
  return all;
}

}  // namespace headrace
