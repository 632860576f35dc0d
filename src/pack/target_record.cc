// How a later run recognises what the target holds, and why no kill leaves a lie there:
//
// - The plan is put only if absent: of two packs that begin at once, one meets the other's, and
//   goes on only if it is the same to the letter. Where only the digest is, another version of
//   Headrace began, whose records may mean something else: it is refused.
// - A plan of which nothing came yet gives way to another: it is what a wrong option leaves. Who
//   takes its place looks again for shards behind its own plan, and who began before finds another
//   plan before and behind its first shard (check_plan()).
// - A shard without samples is no object: most readers refuse an empty one. Its record has 0 bytes.
// - A record vouches for the shard of its number and of that size. It comes after its shard and
//   goes before another one takes the place (forget()). One without its shard goes before anything
//   is made (reopen(), begin_write()): it would vouch for any shard of that size.
// - The word that all is there stands for all records. It comes after the index and before they go,
//   and before a shard is made again they are written anew and it goes (reopen()).
// - Of samples of a program a second writer knows nothing, so the last to begin is the one: its
//   name is in run.json, the others find it there before they put a shard, and before the end.
#include "headrace/target_record.h"

#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "headrace/range_fetcher.h"
#include "io/new_object.h"
#include "pack/index_text.h"
#include "pack/json_text.h"
#include "pack/shard_names.h"
#include "shard/dataset/listing.h"
#include "store/file/file_key.h"

namespace headrace {
namespace {

using nlohmann::json;
using pack_detail::python_json;
using pack_detail::ShardNames;

constexpr const char* kPlan = detail::kPackPlan.data();
constexpr const char* kFinished = detail::kPackFinished.data();
constexpr const char* kWork = ".hrpack/";
constexpr const char* kRun = ".hrpack/run.json";
constexpr const char* kRecords = ".hrpack/done/";
constexpr const char* kIndex = "index.json";
// What packs and other writers call the shards of formats with an index.json.
constexpr const char* kShardPrefixes[] = {"shard", "chunk-", "part-"};
constexpr std::uint64_t kMostRecordBytes = 64 << 10;
// Against objects that are not ours: a million shards take 300 MB.
constexpr std::uint64_t kMostTextBytes = std::uint64_t{1} << 30;

const ShardNames& record_names() {
  static const ShardNames names{kRecords, 6, ".json"};
  return names;
}

ShardNames names_of(const PackId& id) {
  return pack_detail::shard_names(id.format, id.is_compressed);
}

bool is_there(const std::map<std::uint64_t, std::uint64_t>& sizes, std::uint64_t shard,
              const ShardFacts& facts) {
  if (!facts.has_object()) return true;
  const auto found = sizes.find(shard);
  return found != sizes.end() && found->second == facts.stored_bytes;
}

json parse_json(std::string_view text) {
  return json::parse(text, nullptr, /*allow_exceptions=*/false);
}

json to_json(const ShardFacts& facts) {
  json out;
  visit_facts(facts, [&out](const char* name, const auto& member) { out[name] = member; });
  return out;
}

void take(const json& value, std::string& member) {
  if (value.is_string()) member = value.get<std::string>();
}

void take(const json& value, std::uint64_t& member) {
  if (value.is_number_unsigned()) member = value.get<std::uint64_t>();
}

/// Members that are missing stay as they are: releases before wrote no "content" of most formats.
ShardFacts facts_of(const json& object) {
  ShardFacts facts;
  visit_facts(facts, [&object](const char* name, auto& member) {
    if (object.is_object() && object.contains(name)) take(object[name], member);
  });
  return facts;
}

/// A member of an object of the pack of this digest; null: there is none.
json member_of(std::string_view text, const std::string& digest, const char* name) {
  const json object = parse_json(text);
  const bool is_ours = object.is_object() && object.value("digest", json()) == digest;
  return is_ours ? object.value(name, json()) : json();
}

/// Folders of kWork, empty now, where the target is local: other stores have none.
void remove_folders(const std::string& url) {
  namespace fs = std::filesystem;
  const auto root = file::root_of(url);
  if (!root) return;
  std::error_code ignored;  // Somebody else removed it, or began anew in it.
  const fs::path top = fs::path(*root) / fs::path(kWork).parent_path();
  std::vector<fs::path> folders{top};
  for (fs::recursive_directory_iterator it(top, ignored), end; it != end; it.increment(ignored))
    if (it->is_directory(ignored)) folders.push_back(it->path());
  // The innermost first.
  for (auto folder = folders.rbegin(); folder != folders.rend(); ++folder)
    fs::remove(*folder, ignored);
}

}  // namespace

// --- objects of the target ---

Result<TargetRecord::Sizes> TargetRecord::list(std::string_view prefix,
                                               const CallOptions& call) const {
  Sizes sizes;
  auto objects = list_all(store_, std::string(prefix), call);
  // A directory that is not there yet.
  if (!objects && objects.error().code() == Code::kNotFound) return sizes;
  if (!objects) return std::move(objects).error();
  for (ObjectInfo& object : *objects) sizes.emplace(std::move(object.key), object.size_bytes);
  return sizes;
}

Result<std::optional<std::string>> TargetRecord::read(const std::string& key,
                                                      const CallOptions& call) const {
  auto text = read_object(store_, pool_, key, kMostTextBytes, call);
  if (text) return std::optional<std::string>(*std::move(text));
  if (text.error().code() == Code::kNotFound) return std::optional<std::string>();
  return std::move(text).error();
}

Status TargetRecord::put(const std::string& key, std::string_view text,
                         const CallOptions& call) const {
  auto written = write_object(store_, pool_, key, text, call);
  return written ? Status() : std::move(written).error();
}

/// A version that stays: readers keep what they know of an object by it.
Status TargetRecord::put_unless_same(const std::string& key, const std::string& text,
                                     const CallOptions& call) const {
  HEADRACE_TRY_ASSIGN(const auto found, read(key, call));
  return found == text ? Status() : put(key, text, call);
}

Status TargetRecord::remove(const std::vector<std::string>& keys, const CallOptions& call) const {
  if (keys.empty()) return {};
  for (Status& status : store_.remove_many(keys, call))
    if (status.code() != Code::kNotFound) HEADRACE_TRY(std::move(status));
  return {};
}

Status TargetRecord::remove_below(std::string_view prefix, const CallOptions& call) const {
  HEADRACE_TRY_ASSIGN(const Sizes objects, list(prefix, call));
  std::vector<std::string> keys;
  for (const auto& [key, size] : objects) keys.push_back(key);
  return remove(keys, call);
}

// --- beginning ---

std::string PackId::name_of(std::uint64_t shard) const { return names_of(*this).name_of(shard); }

/// True for what another version of Headrace says of this pack.
bool TargetRecord::is_same_pack(const std::string& found) const {
  // Not by a parser: names that are not UTF-8 are surrogates in the JSON of Python.
  return found.find("\"digest\": \"" + id_.digest + "\"") != std::string::npos;
}

Status TargetRecord::refuse_plan(const std::string& found) const {
  return Status(
      Code::kInvalidArgument,
      store_.url() + (is_same_pack(found)
                          ? " holds what another version of Headrace began; finish it with "
                            "that version, or choose another target or empty it"
                          : " holds a pack of another source or other options, as .hrpack.json "
                            "there says; choose another target or empty it, of names that "
                            "begin with a dot, too"));
}

Status TargetRecord::refuse_foreign(const CallOptions& call) const {
  HEADRACE_TRY_ASSIGN(const std::string found, first_of_a_dataset(call));
  if (found.empty()) return {};
  return Status(Code::kInvalidArgument,
                store_.url() + " already holds " + found +
                    ", which is not from a pack; choose another target or empty it");
}

/// Key of an index or a shard, whoever wrote it; empty: there is none.
Result<std::string> TargetRecord::first_of_a_dataset(const CallOptions& call) const {
  HEADRACE_TRY_ASSIGN(Sizes found, list(kIndex, call));
  if (found.empty() && !pack_detail::has_index(id_.format)) return first_that_may_be_data(call);
  for (const char* prefix : kShardPrefixes) {
    if (!found.empty()) break;
    HEADRACE_TRY_ASSIGN(found, list(prefix, call));
  }
  return found.empty() ? std::string() : found.begin()->first;
}

/// Key of a file that readers would take for one of the dataset, or for one of another format
/// among its files; empty: there is none.
Result<std::string> TargetRecord::first_that_may_be_data(const CallOptions& call) const {
  ListRequest request;
  do {
    auto page = store_.list(request, call);
    if (!page && page.error().code() == Code::kNotFound) return std::string();
    if (!page) return std::move(page).error();
    const detail::Candidates found = detail::sort_candidates(std::move(page->objects));
    if (!found.data.empty()) return found.data.front().key;
    request.continuation = std::move(page->continuation);
  } while (!request.continuation.empty());
  return std::string();
}

/// True while nothing came of the plan that is there.
Result<bool> TargetRecord::is_bare(const CallOptions& call) const {
  HEADRACE_TRY_ASSIGN(const std::string found, first_of_a_dataset(call));
  if (!found.empty()) return false;
  HEADRACE_TRY_ASSIGN(const bool was_finished, is_finished(call));
  HEADRACE_TRY_ASSIGN(const auto records, recorded(call));
  return !was_finished && records.empty();
}

Status TargetRecord::load(const CallOptions& call) const {
  HEADRACE_TRY_ASSIGN(const auto found, read(kPlan, call));
  if (found == id_.plan) return {};
  if (found) {
    HEADRACE_TRY_ASSIGN(const bool is_of_nothing, is_bare(call));
    if (!is_of_nothing || is_same_pack(*found)) return refuse_plan(*found);
    HEADRACE_TRY(remove({kPlan}, call));
    HEADRACE_TRY(remove_below(kWork, call));
  }
  HEADRACE_TRY(refuse_foreign(call));
  const Status at_once(Code::kInvalidArgument,
                       store_.url() + ": another pack began there at the same time");
  auto written = io::write_new_object(store_, pool_, kPlan, id_.plan, call);
  if (!written) {
    if (written.error().code() != Code::kChanged) return std::move(written).error();
    // Somebody else began between our two looks: fine when it is the same pack.
    HEADRACE_TRY_ASSIGN(const auto theirs, read(kPlan, call));
    return theirs == id_.plan ? Status() : at_once.clone();
  }
  if (!found) return {};
  HEADRACE_TRY_ASSIGN(const bool is_ours, is_bare(call));
  return is_ours ? Status() : at_once.clone();
}

Status TargetRecord::check_plan(const CallOptions& call) const {
  HEADRACE_TRY_ASSIGN(const auto found, read(kPlan, call));
  if (found == id_.plan) return {};
  return Status(Code::kChanged,
                store_.url() + ": another pack began there; this one ends, as only one can be");
}

Result<TargetRecord::Facts> TargetRecord::reopen(const CallOptions& call) const {
  HEADRACE_TRY_ASSIGN(const bool was_finished, is_finished(call));
  HEADRACE_TRY_ASSIGN(Facts facts, done(call));
  HEADRACE_TRY(forget_others(facts, call));
  if (!was_finished) return facts;
  for (const auto& [shard, one] : facts) HEADRACE_TRY(record(shard, one, call));
  HEADRACE_TRY(remove({kFinished}, call));
  return facts;
}

Result<TargetRecord::Facts> TargetRecord::begin_write(const std::string& run,
                                                      const CallOptions& call) const {
  HEADRACE_TRY(load(call));
  HEADRACE_TRY_ASSIGN(const bool is_over, is_finished(call));
  if (is_over) {
    return Status(
        Code::kInvalidArgument,
        store_.url() + " already holds a finished dataset; choose another target or empty it");
  }
  HEADRACE_TRY(put(kRun, python_json(json{{"run", run}}), call));
  // Of a write that broke off at its very end: nobody shall read our shards by it.
  HEADRACE_TRY(remove({kIndex}, call));
  HEADRACE_TRY_ASSIGN(Facts facts, done(call));
  HEADRACE_TRY(forget_others(facts, call));
  return facts;
}

Status TargetRecord::check_run(const std::string& run, const CallOptions& call) const {
  HEADRACE_TRY_ASSIGN(const auto found, read(kRun, call));
  if (found == python_json(json{{"run", run}})) return {};
  return Status(Code::kChanged, store_.url() +
                                    ": another write began there; this one ends, as only one can "
                                    "be");
}

/// Removes the records of shards that are not done.
Status TargetRecord::forget_others(const Facts& done, const CallOptions& call) const {
  HEADRACE_TRY_ASSIGN(const Sizes records, list(kRecords, call));
  std::vector<std::string> others;
  for (const auto& [key, size] : records) {
    const auto shard = record_names().shard_of(key);
    if (!shard || !done.contains(*shard)) others.push_back(key);
  }
  return remove(others, call);
}

// --- one shard ---

Status TargetRecord::record(std::uint64_t shard, const ShardFacts& facts,
                            const CallOptions& call) const {
  const json text = {{"digest", id_.digest}, {"facts", to_json(facts)}};
  return put(record_names().name_of(shard), python_json(text), call);
}

Status TargetRecord::forget(std::uint64_t shard, const CallOptions& call) const {
  return remove({record_names().name_of(shard)}, call);
}

// --- looking ---

Result<std::map<std::uint64_t, std::uint64_t>> TargetRecord::sizes(const CallOptions& call) const {
  const ShardNames names = names_of(id_);
  HEADRACE_TRY_ASSIGN(const Sizes objects, list(names.before, call));
  std::map<std::uint64_t, std::uint64_t> sizes;
  for (const auto& [key, size] : objects)
    if (const auto shard = names.shard_of(key)) sizes.emplace(*shard, size);
  return sizes;
}

Result<bool> TargetRecord::is_finished(const CallOptions& call) const {
  auto found = store_.head(kFinished, call);
  if (found) return true;
  if (found.error().code() == Code::kNotFound) return false;
  return std::move(found).error();
}

Result<std::vector<std::uint64_t>> TargetRecord::recorded(const CallOptions& call) const {
  HEADRACE_TRY_ASSIGN(const Sizes records, list(kRecords, call));
  std::vector<std::uint64_t> shards;
  for (const auto& [key, size] : records)
    if (const auto shard = record_names().shard_of(key)) shards.push_back(*shard);
  return shards;
}

Result<std::optional<std::vector<ShardFacts>>> TargetRecord::read_finished(
    const CallOptions& call) const {
  std::optional<std::vector<ShardFacts>> all;
  HEADRACE_TRY_ASSIGN(const auto text, read(kFinished, call));
  const json parts = text ? member_of(*text, id_.digest, "parts") : json();
  if (!parts.is_array()) return all;
  all.emplace();
  for (const json& part : parts) all->push_back(facts_of(part));
  return all;
}

/// Many at once; those that are gone or being replaced are left out.
Result<TargetRecord::Facts> TargetRecord::read_records(const CallOptions& call) const {
  HEADRACE_TRY_ASSIGN(const Sizes records, list(kRecords, call));
  HEADRACE_TRY_ASSIGN(const auto fetcher, RangeFetcher::create(store_, pool_, {.call = call}));
  for (const auto& [key, size] : records) {
    const auto shard = record_names().shard_of(key);
    if (!shard || size == 0 || size > kMostRecordBytes) continue;
    fetcher->start({.key = key, .etag = {}, .length_bytes = size, .tag = *shard});
  }
  Facts facts;
  while (fetcher->pending() > 0) {
    auto data = fetcher->next();
    const Code code = data ? Code::kOk : data.error().code();
    if (code == Code::kNotFound || code == Code::kCorrupt) continue;
    if (!data) return data.error().clone();
    const auto bytes = data->bytes();
    const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    const json found = member_of(text, id_.digest, "facts");
    if (found.is_object()) facts.emplace(data->tag, facts_of(found));
  }
  return facts;
}

Result<TargetRecord::Facts> TargetRecord::done(const CallOptions& call) const {
  HEADRACE_TRY_ASSIGN(const auto there, sizes(call));
  HEADRACE_TRY_ASSIGN(auto finished, read_finished(call));
  Facts facts;
  if (finished) {
    for (ShardFacts& one : *finished) facts.emplace(facts.size(), std::move(one));
  } else {
    HEADRACE_TRY_ASSIGN(facts, read_records(call));
  }
  std::erase_if(facts, [&](const auto& one) { return !is_there(there, one.first, one.second); });
  return facts;
}

Result<std::optional<std::vector<ShardFacts>>> TargetRecord::finished(
    const CallOptions& call) const {
  HEADRACE_TRY_ASSIGN(auto all, read_finished(call));
  if (!all) return all;
  HEADRACE_TRY_ASSIGN(const auto there, sizes(call));
  for (std::size_t i = 0; all && i < all->size(); ++i)
    if (!is_there(there, i, (*all)[i])) all.reset();
  return all;
}

// --- the end ---

Status TargetRecord::finish(std::span<const ShardFacts> facts, const std::string& config_json,
                            const CallOptions& call) const {
  HEADRACE_TRY_ASSIGN(const auto there, sizes(call));
  for (std::size_t i = 0; i < facts.size(); ++i) {
    if (is_there(there, i, facts[i])) continue;
    return Status(Code::kChanged, store_.url() + "/" + facts[i].name +
                                      " is gone, or not as it was written here: something else has "
                                      "changed the target meanwhile; run this again");
  }
  std::vector<std::string> beyond;
  for (const auto& [shard, size] : there)
    if (shard >= facts.size() || !facts[shard].has_object()) beyond.push_back(id_.name_of(shard));
  HEADRACE_TRY(remove(beyond, call));
  const std::string index = pack_detail::index_text(id_.format, config_json, facts);
  if (!index.empty()) HEADRACE_TRY(put_unless_same(kIndex, index, call));
  json parts = json::array();
  for (const ShardFacts& one : facts) parts.push_back(to_json(one));
  const json all = {{"digest", id_.digest}, {"parts", std::move(parts)}};
  HEADRACE_TRY(put_unless_same(kFinished, python_json(all), call));
  HEADRACE_TRY(remove_below(kWork, call));
  remove_folders(store_.url());
  return {};
}

Status TargetRecord::finish_write(const std::string& run, std::span<const ShardFacts> facts,
                                  const std::string& config_json, const CallOptions& call) const {
  HEADRACE_TRY_ASSIGN(const auto all, finished(call));
  const bool is_our_end = all && std::equal(all->begin(), all->end(), facts.begin(), facts.end());
  if (!is_our_end) {
    HEADRACE_TRY(check_run(run, call));
    HEADRACE_TRY(check_ours(facts, call));
  }
  return finish(facts, config_json, call);
}

Status TargetRecord::check_ours(std::span<const ShardFacts> facts, const CallOptions& call) const {
  HEADRACE_TRY_ASSIGN(const Facts there, done(call));
  for (std::size_t i = 0; i < facts.size(); ++i) {
    const auto found = there.find(i);
    if (found != there.end() && found->second == facts[i]) continue;
    return Status(Code::kChanged, store_.url() + ": " + facts[i].name +
                                      " was written by another write at the same time; write "
                                      "again, one at a time");
  }
  return {};
}

}  // namespace headrace
