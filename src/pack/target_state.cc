// What the target holds already, and how a later run recognises it:
//
// - `.hrpack.json` names the pack by the digest of its plan. It is put only if absent: of two
//   packs that begin at once, one meets the other's record, and goes on only if it is the same
//   pack.
// - A plain shard of the planned size is done: shards appear whole. A compressed or hashed one
//   needs its record, which names the version it was made for; a shard written again has another.
// - Records go when index.json stands, which repeats what is in them.
//
// Nothing that is not ours is written over: shards or an index without a plan's record are an
// error.
#include "pack/target_state.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>

#include "base/strings.h"
#include "headrace/range_fetcher.h"
#include "io/new_object.h"
#include "pack/json_text.h"
#include "pack/shard_image.h"
#include "pack/shard_names.h"

namespace headrace::pack_detail {
namespace {

using nlohmann::json;

constexpr const char* kPlanName = ".hrpack.json";
constexpr std::string_view kRecordPrefix = ".hrpack.";
constexpr const char* kIndexName = "index.json";
constexpr std::uint64_t kNoShard = ~std::uint64_t{0};
constexpr std::uint64_t kMostRecordBytes = 64 << 10;

json parse_json(const std::string& text) {
  return json::parse(text, nullptr, /*allow_exceptions=*/false);
}

std::string text_of(const json& object, const char* name) {
  const auto it = object.find(name);
  return it != object.end() && it->is_string() ? it->get<std::string>() : std::string();
}

std::uint64_t number_of(const json& object, const char* name) {
  const auto it = object.find(name);
  return it != object.end() && it->is_number_unsigned() ? it->get<std::uint64_t>() : 0;
}

json member(const json& object, const char* name) {
  const auto it = object.is_object() ? object.find(name) : object.end();
  return object.is_object() && it != object.end() ? *it : json();
}

/// What an index says of a shard besides its size. False: it says another size, or nothing.
bool add_hashes(const json& entry, const PackPlan& plan, ShardFacts& facts) {
  const json stored = member(entry, plan.is_compressed() ? "zip_data" : "raw_data");
  if (!stored.is_object() || number_of(stored, "bytes") != facts.stored_bytes) return false;
  if (!plan.hash.empty()) {
    facts.raw_hash = text_of(member(member(entry, "raw_data"), "hashes"), plan.hash.c_str());
    facts.zip_hash = text_of(member(member(entry, "zip_data"), "hashes"), plan.hash.c_str());
  }
  return true;
}

/// The shard of TargetState::record_name(); kNoShard for other names.
std::uint64_t shard_of_record(std::string_view key) {
  constexpr std::string_view kTail = ".json";
  if (!key.starts_with(kRecordPrefix) || !key.ends_with(kTail)) return kNoShard;
  key.remove_prefix(kRecordPrefix.size());
  if (key.size() <= kTail.size()) return kNoShard;
  key.remove_suffix(kTail.size());
  return parse_decimal<std::uint64_t>(key).value_or(kNoShard);
}

}  // namespace

std::string TargetState::record_name(std::uint64_t shard) const {
  std::array<char, 48> text{};
  std::snprintf(text.data(), text.size(), ".hrpack.%06llu.json",
                static_cast<unsigned long long>(shard));
  return text.data();
}

Result<std::optional<std::string>> TargetState::read_optional(const std::string& key,
                                                              const CallOptions& call) {
  // An index may hold a kilobyte a shard.
  const std::uint64_t most = kMostRecordBytes + plan_.shards.size() * 2048;
  auto text = read_object(target_, pool_, key, most, call);
  if (text) return std::optional<std::string>(*std::move(text));
  if (text.error().code() == Code::kNotFound) return std::optional<std::string>();
  return std::move(text).error();
}

Result<std::vector<ObjectInfo>> TargetState::list_names(std::string_view prefix,
                                                        const CallOptions& call) {
  std::vector<ObjectInfo> names;
  std::set<std::string> tokens;
  ListRequest request{
      .prefix = std::string(prefix), .delimiter = "/", .continuation = {}, .page_size = 1000};
  do {
    auto page = target_.list(request, call);
    if (!page && page.error().code() == Code::kNotFound)
      return names;  // A directory that is not there yet.
    if (!page) return std::move(page).error();
    if (!page->continuation.empty() && !tokens.insert(page->continuation).second) {
      return Status(Code::kCorrupt, "LIST " + target_.object_url(prefix) +
                                        ": the store continues twice at the same place");
    }
    request.continuation = page->continuation;
    std::move(page->objects.begin(), page->objects.end(), std::back_inserter(names));
  } while (!request.continuation.empty());
  // Some stores list in no order (S3 Express).
  std::sort(names.begin(), names.end(),
            [](const ObjectInfo& a, const ObjectInfo& b) { return a.key < b.key; });
  return names;
}

Status TargetState::check_digest(const std::string& plan_record) const {
  const json record = parse_json(plan_record);
  if (record.is_object() && text_of(record, "digest") == plan_.digest) return {};
  return Status(Code::kInvalidArgument,
                "pack: " + target_.url() +
                    " holds a pack of other files or options; choose another target or empty it");
}

Status TargetState::check_plan_record(const std::vector<ObjectInfo>& shards,
                                      const CallOptions& call) {
  HEADRACE_TRY_ASSIGN(const std::optional<std::string> text, read_optional(kPlanName, call));
  if (text) return check_digest(*text);
  if (!shards.empty() || old_index_) {
    return Status(Code::kInvalidArgument,
                  "pack: " + target_.url() + " already holds " +
                      (shards.empty() ? kIndexName : shards.front().key) +
                      ", which is not from a pack; choose another target or empty it");
  }
  const json record = {{"digest", plan_.digest},
                       {"files", plan_.files.size()},
                       {"samples", plan_.sample_count},
                       {"shards", plan_.shards.size()},
                       {"version", 1}};
  auto written = io::write_new_object(target_, pool_, kPlanName, python_json(record), call);
  if (written) return {};
  if (written.error().code() != Code::kChanged) return std::move(written).error();
  // Somebody else began between our two looks: fine when it is the same pack.
  HEADRACE_TRY_ASSIGN(const std::optional<std::string> theirs, read_optional(kPlanName, call));
  return theirs ? check_digest(*theirs) : std::move(written).error();
}

Status TargetState::load(const CallOptions& call) {
  facts_.assign(plan_.shards.size(), std::nullopt);
  HEADRACE_TRY_ASSIGN(const std::vector<ObjectInfo> objects, list_names("shard", call));
  HEADRACE_TRY_ASSIGN(old_index_, read_optional(kIndexName, call));
  HEADRACE_TRY(check_plan_record(objects, call));
  const std::vector<const ObjectInfo*> shards = shards_there(objects);
  if (needs_records() && !old_index_) return load_records(shards, call);
  const json entries = needs_records() ? member(parse_json(*old_index_), "shards") : json();
  for (std::size_t i = 0; i < shards.size(); ++i) {
    if (shards[i] == nullptr) continue;
    ShardFacts facts{.stored_bytes = shards[i]->size_bytes, .raw_hash = {}, .zip_hash = {}};
    if (needs_records()) {
      if (!entries.is_array() || i >= entries.size()) break;
      if (!add_hashes(entries[i], plan_, facts)) continue;
    }
    facts_[i] = std::move(facts);
  }
  return {};
}

/// By number; nullptr: not there, or of another size than planned.
std::vector<const ObjectInfo*> TargetState::shards_there(
    const std::vector<ObjectInfo>& objects) const {
  std::vector<const ObjectInfo*> shards(plan_.shards.size());
  for (std::uint64_t i = 0; i < shards.size(); ++i) {
    const std::string name = plan_.object_name(i);
    const auto object =
        std::lower_bound(objects.begin(), objects.end(), name,
                         [](const ObjectInfo& a, const std::string& key) { return a.key < key; });
    if (object == objects.end() || object->key != name) continue;
    if (plan_.is_compressed() || object->size_bytes == plan_.shards[i].image_bytes)
      shards[i] = &*object;
  }
  return shards;
}

/// Many at once. A record is of one version of a shard.
Status TargetState::load_records(std::span<const ObjectInfo* const> shards,
                                 const CallOptions& call) {
  HEADRACE_TRY_ASSIGN(const std::vector<ObjectInfo> names, list_names(kRecordPrefix, call));
  HEADRACE_TRY_ASSIGN(const auto fetcher, RangeFetcher::create(target_, pool_, {.call = call}));
  for (const ObjectInfo& object : names) {
    const std::uint64_t shard = shard_of_record(object.key);
    if (shard >= shards.size() || shards[shard] == nullptr || object.size_bytes == 0) continue;
    if (object.size_bytes > kMostRecordBytes) continue;
    fetcher->start({.key = object.key,
                    .etag = {},
                    .length_bytes = object.size_bytes,
                    .allow_short = true,
                    .tag = shard});
  }
  while (fetcher->pending() > 0) {
    auto data = fetcher->next();
    // Somebody else finishes this pack: what was not read is made again.
    if (!data && data.error().code() == Code::kNotFound) return {};
    if (!data) return std::move(data).error();
    const auto bytes = data->bytes();
    const json record =
        parse_json(std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
    const ObjectInfo& object = *shards[data->tag];
    if (!record.is_object() || text_of(record, "etag") != object.etag ||
        text_of(record, "plan") != plan_.digest)
      continue;
    facts_[data->tag] = ShardFacts{.stored_bytes = object.size_bytes,
                                   .raw_hash = text_of(record, "raw_hash"),
                                   .zip_hash = text_of(record, "zip_hash")};
  }
  return {};
}

Status TargetState::record(Store& handle, const FinishedShard& shard,
                           const CallOptions& call) const {
  if (!needs_records()) return {};
  const json record = {{"etag", shard.etag},
                       {"plan", plan_.digest},
                       {"raw_hash", shard.facts.raw_hash},
                       {"zip_hash", shard.facts.zip_hash}};
  auto written = write_object(handle, pool_, record_name(shard.shard), python_json(record), call);
  return written ? Status() : std::move(written).error();
}

std::string TargetState::index_json(std::span<const std::optional<ShardFacts>> facts) const {
  json shards = json::array();
  for (std::uint64_t i = 0; i < facts.size(); ++i) {
    json entry = mds_config_json(plan_);
    const auto file = [&](const std::string& name, std::uint64_t bytes, const std::string& hash) {
      json hashes = json::object();
      if (!plan_.hash.empty()) hashes[plan_.hash] = hash;
      return json{{"basename", name}, {"bytes", bytes}, {"hashes", hashes}};
    };
    entry["samples"] = plan_.shards[i].sample_count;
    entry["raw_data"] = file(shard_names(plan_.format(), false).name_of(i),
                             plan_.shards[i].image_bytes, facts[i]->raw_hash);
    entry["zip_data"] = plan_.is_compressed()
                            ? file(plan_.object_name(i), facts[i]->stored_bytes, facts[i]->zip_hash)
                            : json();
    shards.push_back(std::move(entry));
  }
  return python_json(json{{"shards", std::move(shards)}, {"version", 2}});
}

Status TargetState::finish(std::span<const std::optional<ShardFacts>> facts,
                           const CallOptions& call) {
  if (plan_.layout == Layout::kTarFiles) return {};
  const std::string index = index_json(facts);
  if (index != old_index_) {
    auto written = write_object(target_, pool_, kIndexName, index, call);
    if (!written) return std::move(written).error();
  }
  if (!needs_records()) return {};
  HEADRACE_TRY_ASSIGN(const std::vector<ObjectInfo> names, list_names(kRecordPrefix, call));
  std::vector<std::string> records;
  for (const ObjectInfo& object : names)
    if (shard_of_record(object.key) != kNoShard) records.push_back(object.key);
  for (Status& status : target_.remove_many(records, call)) HEADRACE_TRY(std::move(status));
  return {};
}

}  // namespace headrace::pack_detail
