#include "shard/dataset/lost_index.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string>

#include "shard/codec/json_reader.h"

namespace headrace::detail {
namespace {

// Folders that a message names.
constexpr std::size_t kMostShown = 4;

std::string_view base_name(std::string_view key) { return key.substr(key.rfind('/') + 1); }

std::string_view folder_of(std::string_view key) {
  const std::size_t slash = key.rfind('/');
  return slash == std::string_view::npos ? std::string_view() : key.substr(0, slash);
}

bool ends_with_any(std::string_view key, std::initializer_list<std::string_view> endings) {
  return std::any_of(endings.begin(), endings.end(),
                     [key](std::string_view e) { return key.ends_with(e); });
}

std::string_view without_coding(std::string_view name) {
  for (const std::string_view coding : {".zstd", ".zst", ".gz", ".bz2", ".br", ".snappy"})
    if (name.ends_with(coding)) return name.substr(0, name.size() - coding.size());
  return name;
}

// Takes one digit or more.
bool take_digits(std::string_view& text) {
  const std::size_t count = std::min(text.find_first_not_of("0123456789"), text.size());
  text.remove_prefix(count);
  return count > 0;
}

bool take(std::string_view& text, std::string_view prefix) {
  if (!text.starts_with(prefix)) return false;
  text.remove_prefix(prefix.size());
  return true;
}

bool is_litdata_chunk(std::string_view name) {
  return take(name, "chunk-") && take_digits(name) && take(name, "-") && take_digits(name) &&
         name.starts_with('.') && name.ends_with(".bin");
}

// Folders of `all` with an index.json of their own, in order.
std::set<std::string_view> indexed_folders(std::span<const ObjectInfo> all) {
  std::set<std::string_view> folders;
  for (const ObjectInfo& object : all) {
    if (base_name(object.key) == kMdsIndexName && object.size_bytes > 0 &&
        object.key.find('/') != std::string::npos)
      folders.insert(folder_of(object.key));
  }
  return folders;
}

std::string shown(const std::set<std::string_view>& folders) {
  std::string text;
  std::size_t count = 0;
  for (const std::string_view folder : folders) {
    if (count++ == kMostShown) return text + ", ...";
    text += fmt::format("{}{}/", text.empty() ? "" : ", ", folder);
  }
  return text;
}

std::string_view what_to_do(Format format) {
  return format == Format::kMds
             ? "`headrace index --rebuild` makes one from MDS shards"
             : "write the dataset again, as its writer may have been killed before the end";
}

}  // namespace

Format format_of_indexed_name(std::string_view key) noexcept {
  const std::string_view name = base_name(key);
  if (is_litdata_chunk(name)) return Format::kLitData;
  return without_coding(name).ends_with(".mds") ? Format::kMds : Format::kAuto;
}

bool is_meta_of_lines(std::string_view key) noexcept {
  std::string_view name = without_coding(base_name(key));
  return take(name, "shard.") && take_digits(name) &&
         ends_with_any(name, {".json.meta", ".csv.meta", ".tsv.meta", ".xsv.meta"});
}

Status check_index_json(const Store& store, std::string_view json) {
  const std::string url = store.object_url(std::string(kMdsIndexName));
  const std::string_view remedy =
      "the shards beside it cannot be read without it; `headrace index --rebuild` makes one from "
      "MDS shards, format= says what the folder holds if this is no index of a dataset";
  if (json.find_first_not_of(" \t\r\n") == std::string_view::npos)
    return Status(Code::kCorrupt, fmt::format("{}: is empty: {}", url, remedy));
  simdjson::dom::parser parser;
  if (auto root = parse_json(parser, json); !root) {
    return Status(Code::kCorrupt, fmt::format("{}: is damaged ({} bytes that are no {}): {}", url,
                                              json.size(), root.error().message(), remedy));
  }
  return Status();
}

Status lost_index(const BuildContext& context, const DataObjects& shards,
                  std::span<const ObjectInfo> all) {
  const std::string& url = context.store.url();
  const std::string& first = shards.objects.front().key;
  const std::string_view name = shards.format == Format::kMds ? "MDS" : "LitData";
  if (!context.options.keys.empty()) {
    return Status(Code::kInvalidArgument,
                  fmt::format("{}: is a shard of {}, which is read through its {}: open the folder",
                              context.store.object_url(first), name, kMdsIndexName));
  }
  const auto folders = indexed_folders(all);
  if (folders.contains(folder_of(first))) {
    return Status(Code::kInvalidArgument,
                  fmt::format("{}: has no {} of its own, but {} shards that are indexed in {}: "
                              "open {}/{}, or a list of such folders",
                              url, kMdsIndexName, name, shown(folders), url, folder_of(first)));
  }
  const bool has_json = std::any_of(
      all.begin(), all.end(), [](const ObjectInfo& object) { return object.key == kMdsIndexName; });
  const std::string what =
      has_json ? fmt::format("its {} names no shards: it is damaged, or not theirs", kMdsIndexName)
               : fmt::format("there is no {}", kMdsIndexName);
  return Status(
      has_json ? Code::kCorrupt : Code::kNotFound,
      fmt::format("{}: holds {} shards ({} and {} more), but {}; {}, format='raw' reads "
                  "them as files",
                  url, name, first, shards.objects.size() - 1, what, what_to_do(shards.format)));
}

}  // namespace headrace::detail
