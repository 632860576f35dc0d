#include "cluster_options.h"

#include "option_table.h"
#include "store_options.h"

namespace headrace {
namespace {

OptionTable<MemcachedOptions> make_memcached_table() {
  return {
      {"nodes",
       [](MemcachedOptions& options, nb::handle value) {
         options.nodes = nb::cast<std::vector<std::string>>(value);
       }},
      {"item_size", plain(&MemcachedOptions::item_bytes)},
      {"connections", plain(&MemcachedOptions::read_connections)},
      {"timeout", [](MemcachedOptions& options,
                     nb::handle value) { options.timeout = seconds_of("timeout", value); }},
  };
}

MemcachedOptions parse_memcached(const nb::dict& fields) {
  static const OptionTable<MemcachedOptions> kTable = make_memcached_table();
  MemcachedOptions options;
  kTable.apply(fields, options);
  return options;
}

/// Of {"url", "options", "environment"} and, if it is named, "timeout".
HotStoreOptions parse_hot_store(const nb::dict& fields) {
  HotStoreOptions options;
  options.store = parse_store_options(nb::cast<std::string>(fields["url"]),
                                      nb::cast<nb::dict>(fields["options"]));
  options.environment =
      make_environment(nb::cast<std::map<std::string, std::string>>(fields["environment"]));
  if (fields.contains("timeout")) options.timeout = seconds_of("timeout", fields["timeout"]);
  return options;
}

ClusterCacheOptions parse_tier(const std::string& kind, const nb::dict& fields) {
  ClusterCacheOptions options;
  if (kind == "memcached") {
    options.engine = parse_memcached(fields);
  } else {
    options.engine = parse_hot_store(fields);
  }
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
