#include "pack/index_text.h"

#include <nlohmann/json.hpp>

#include "base/check.h"
#include "pack/digest.h"
#include "pack/json_text.h"

namespace headrace::pack_detail {
namespace {

using nlohmann::json;

/// The config once more for each shard, and what is its own.
json mds_entry(const json& config, const ShardFacts& shard) {
  const auto file = [&](const std::string& name, std::uint64_t bytes, const std::string& hash) {
    json hashes = json::object();
    for (const json& kind : config["hashes"]) hashes[kind.get<std::string>()] = hash;
    return json{{"basename", name}, {"bytes", bytes}, {"hashes", hashes}};
  };
  const bool is_zipped = !config["compression"].is_null();
  const std::string raw_name = shard.name.substr(0, shard.name.rfind(".zstd"));
  json entry = config;
  entry["samples"] = shard.sample_count;
  entry["raw_data"] = file(raw_name, shard.raw_bytes, shard.raw_hash);
  entry["zip_data"] = is_zipped ? file(shard.name, shard.stored_bytes, shard.zip_hash) : json();
  return entry;
}

/// litdata names its cache by this: it must change with the data, and not otherwise.
std::string updated_at(std::span<const ShardFacts> facts) {
  Result<Digest> digest = Digest::create("xxh3_64");
  HEADRACE_CHECK(digest);
  for (const ShardFacts& shard : facts) {
    if (!shard.has_object()) continue;
    const std::string line = shard.content + "\n";
    digest->update(std::as_bytes(std::span(line)));
  }
  // 40 bits: what a time as a floating-point number holds to the digit.
  return std::to_string(std::stoull(digest->finish().substr(0, 10), nullptr, 16)) + ".0";
}

json litdata_index(json config, std::span<const ShardFacts> facts) {
  // The level is not part of the name.
  if (!config["compression"].is_null()) config["compression"] = "zstd";
  json chunks = json::array();
  for (const ShardFacts& shard : facts) {
    if (!shard.has_object()) continue;
    chunks.push_back({{"chunk_bytes", shard.raw_bytes},
                      {"chunk_size", shard.sample_count},
                      {"dim", nullptr},
                      {"filename", shard.name}});
  }
  return {{"chunks", chunks}, {"config", config}, {"updated_at", updated_at(facts)}};
}

}  // namespace

bool has_index(std::string_view format) noexcept { return format == "mds" || format == "litdata"; }

std::string index_text(std::string_view format, const std::string& config_json,
                       std::span<const ShardFacts> facts) {
  if (!has_index(format)) return {};
  const json config = json::parse(config_json);
  if (format == "litdata") return python_json(litdata_index(config, facts));
  json shards = json::array();
  for (const ShardFacts& shard : facts)
    if (shard.has_object()) shards.push_back(mds_entry(config, shard));
  return python_json({{"shards", shards}, {"version", 2}});
}

}  // namespace headrace::pack_detail
