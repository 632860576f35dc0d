// A folder is listed once, and everything that is decided by names is decided here: what is
// hidden, what lies beside data, what may be data although it ends as notes do (JSON lines in a
// .json). Keys that the user gives are taken as they are.
//
// manifest_of() names a cached index by all that it depends on: the objects with their versions,
// and the options that change what is built. An option left out would hand one dataset's index to
// another.
#include "shard/dataset/listing.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <map>
#include <set>
#include <span>

#include "shard/dataset/format_driver.h"
#include "shard/dataset/name_parts.h"
#include "shard/dataset/splits.h"
#include "shard/index/hri.h"

namespace headrace::detail {
namespace {

// What `headrace manifest create` puts beside the objects, and leaves out itself.
constexpr std::string_view kManifestName = "MANIFEST.sha256";
// Above this many keys one listing of their folder is fewer requests than a look at each.
constexpr std::size_t kMostHeads = 16;

bool is_hidden(std::string_view key) {
  return key.starts_with('.') || key.find("/.") != std::string_view::npos;
}

// Of files beside data of any format.
constexpr std::string_view kSideEndings[] = {
    ".json",     ".md",     ".yaml", ".yml", ".sqlite", ".hri", ".crc", ".meta",
    ".manifest", ".sha256", ".md5",  ".py",  ".ipynb",  ".rst", ".bib", ".cff"};

bool has_note_ending(std::string_view key) {
  const auto formats = all_formats();
  return std::any_of(formats.begin(), formats.end(), [key](const FormatDriver* driver) {
    return ends_with_any(key, driver->note_endings);
  });
}

bool is_side_file(std::string_view key) {
  const std::string_view name = base_name(key);
  return is_about_data(name) || ends_with_any(name, kSideEndings) || has_side_ending(name) ||
         has_note_ending(name);
}

// Up to and with the last '/' that all keys share.
std::string common_folder(const std::vector<std::string>& keys) {
  std::string_view common = keys.front();
  for (const std::string& key : keys) {
    const auto [a, b] = std::mismatch(common.begin(), common.end(), key.begin(), key.end());
    common = common.substr(0, static_cast<std::size_t>(a - common.begin()));
  }
  return std::string(common.substr(0, common.rfind('/') + 1));
}

Status missing(const BuildContext& context, const std::string& key) {
  return Status(Code::kNotFound, fmt::format("{}: not there", context.store.object_url(key)));
}

Result<std::vector<ObjectInfo>> head_keys(const BuildContext& context,
                                          const std::vector<std::string>& keys, bool must_exist) {
  std::vector<ObjectInfo> found;
  for (const std::string& key : keys) {
    auto info = context.store.head(key, context.call);
    if (!info && !must_exist && info.error().code() == Code::kNotFound) continue;
    if (!info) return std::move(info).error();
    info->key = key;
    found.push_back(*std::move(info));
  }
  return found;
}

/// Of the root, or of a folder below it.
Status refuse_unfinished(const std::string& url, std::span<const ObjectInfo> listing) {
  std::set<std::string_view> begun;
  std::set<std::string_view> finished;
  for (const ObjectInfo& object : listing) {
    const std::string_view name = base_name(object.key);
    const std::string_view folder =
        std::string_view(object.key).substr(0, object.key.size() - name.size());
    if (name == kPackPlan) begun.insert(folder);
    if (name == kPackFinished) finished.insert(folder);
  }
  for (const std::string_view folder : begun) {
    if (finished.contains(folder)) continue;
    return Status(
        Code::kInvalidArgument,
        fmt::format(
            "{}: is a part of a dataset: `headrace pack` into it, or a writer, has not come "
            "to its end ({}{} is there, {} is not); run the same again, which goes on, or "
            "empty it; keys= reads single files of it",
            url, folder, kPackPlan, kPackFinished));
  }
  return {};
}

}  // namespace

bool may_be_sample(const ObjectInfo& object) noexcept {
  const std::string_view key = object.key;
  // Hadoop's mark of a directory.
  const bool is_folder_mark = object.size_bytes == 0 && key.ends_with("_$folder$");
  return !key.empty() && !key.ends_with('/') && !is_hidden(key) && key != kIndexName &&
         key != kManifestName && !is_folder_mark;
}

bool is_about_data(std::string_view name) noexcept {
  constexpr std::string_view kBegins[] = {"_",       "README", "LICENSE", "LICENCE",
                                          "COPYING", "NOTICE", "CITATION"};
  // Of the Hub and of datasets.save_to_disk().
  constexpr std::string_view kNames[] = {"dataset_infos.json", "dataset_info.json",
                                         "dataset_dict.json", "state.json"};
  return std::any_of(std::begin(kBegins), std::end(kBegins),
                     [name](std::string_view begin) { return name.starts_with(begin); }) ||
         std::find(std::begin(kNames), std::end(kNames), name) != std::end(kNames);
}

bool has_side_ending(std::string_view key) noexcept {
  const auto formats = all_formats();
  return std::any_of(formats.begin(), formats.end(), [key](const FormatDriver* driver) {
    return ends_with_any(key, driver->side_endings);
  });
}

bool may_be_note(std::string_view key) noexcept {
  const auto formats = all_formats();
  return has_note_ending(key) &&
         std::none_of(formats.begin(), formats.end(),
                      [key](const FormatDriver* driver) { return driver->claims(key); });
}

Result<std::vector<ObjectInfo>> look_up(const BuildContext& context,
                                        const std::vector<std::string>& keys, bool must_exist) {
  if (keys.size() <= kMostHeads) return head_keys(context, keys, must_exist);
  auto listing = list_all(context.store, common_folder(keys), context.call);
  // A plain web server lists nothing.
  if (!listing && listing.error().code() == Code::kUnsupported)
    return head_keys(context, keys, must_exist);
  if (!listing) return std::move(listing).error();
  std::map<std::string_view, const ObjectInfo*> by_key;
  for (const ObjectInfo& object : *listing) by_key[object.key] = &object;
  std::vector<ObjectInfo> found;
  for (const std::string& key : keys) {
    const auto at = by_key.find(key);
    if (at != by_key.end()) {
      found.push_back(*at->second);
    } else if (must_exist) {
      return missing(context, key);
    }
  }
  return found;
}

Candidates sort_candidates(std::vector<ObjectInfo> listing) {
  Candidates out;
  std::erase_if(listing, [](const ObjectInfo& object) { return !may_be_sample(object); });
  std::sort(listing.begin(), listing.end(),
            [](const ObjectInfo& a, const ObjectInfo& b) { return a.key < b.key; });
  std::copy_if(listing.begin(), listing.end(), std::back_inserter(out.data),
               [](const ObjectInfo& object) { return !is_side_file(object.key); });
  std::copy_if(listing.begin(), listing.end(), std::back_inserter(out.lines),
               [](const ObjectInfo& object) {
                 return !is_side_file(object.key) ||
                        (has_note_ending(object.key) && !is_about_data(base_name(object.key)));
               });
  out.all = std::move(listing);
  return out;
}

Result<Candidates> list_candidates(const BuildContext& context) {
  const std::string& url = context.store.url();
  if (!context.options.keys.empty()) {
    HEADRACE_TRY_ASSIGN(auto objects, look_up(context, context.options.keys, true));
    return Candidates{objects, objects, objects};
  }
  auto listing = list_all(context.store, "", context.call);
  if (!listing) {
    if (listing.error().code() != Code::kNotFound) return std::move(listing).error();
    return Status(Code::kNotFound,
                  fmt::format("{}: no dataset there ({})", url, listing.error().message()));
  }
  HEADRACE_TRY(refuse_unfinished(url, *listing));
  Candidates out = sort_candidates(*std::move(listing));
  if (out.all.empty())
    return Status(Code::kNotFound, fmt::format("{}: no dataset there (no files)", url));
  return out;
}

bool shapes_index(const DatasetOptions& options, Format format) noexcept {
  const FormatDriver* driver = driver_of(format);
  const ReadOptions all{
      .columns = true, .labels = true, .lenient = true, .row_groups_where = true, .tokens = true};
  const ReadOptions reads = format == Format::kAuto ? all
                            : driver != nullptr     ? driver->reads
                                                    : ReadOptions{};
  const bool has_tokens = options.tokens_per_sample != 0 || !options.token_dtype.empty();
  const bool has_labels = !(options.labels.empty() && options.manifest.empty());
  return !options.keys.empty() || has_chosen_split(options) || (has_tokens && reads.tokens) ||
         (!options.columns.empty() && reads.columns) || (has_labels && reads.labels) ||
         (!options.row_groups_where.empty() && reads.row_groups_where) ||
         (options.lenient && reads.lenient);
}

std::string manifest_of(const std::vector<ObjectInfo>& objects, const DatasetOptions& options) {
  XXH3_state_t* hash = XXH3_createState();
  // Grows when a build refuses what an earlier one took, or takes what it left out: its cached
  // indexes are then not used.
  constexpr XXH64_hash_t kSeed = 4;
  XXH3_128bits_reset_withSeed(hash, kSeed);
  const auto add = [hash](const std::string& line) {
    XXH3_128bits_update(hash, line.data(), line.size());
  };
  for (const ObjectInfo& object : objects)
    add(fmt::format("{}\n{}\n{}\n", object.key, object.etag, object.size_bytes));
  // All splits as one is not what is found without a choice.
  if (!options.split.empty()) add(fmt::format("split {}\n", options.split));
  if (shapes_index(options, options.format)) {
    add(fmt::format("{}\n{}\n{}\n{}\n", options.tokens_per_sample, options.token_dtype,
                    options.row_groups_where, options.lenient));
    if (!options.labels.empty() || !options.manifest.empty())
      add(fmt::format("{}\n{}\n", options.labels, options.manifest));
    for (const std::string& column : options.columns)
      add(fmt::format("{}\n{}\n", column.size(), column));
  }
  const XXH128_hash_t digest = XXH3_128bits_digest(hash);
  XXH3_freeState(hash);
  return fmt::format("{} {:016x}{:016x}", format_name(options.format), digest.high64, digest.low64);
}

}  // namespace headrace::detail
