#include "shard/dataset/lost_index.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string>

#include "shard/dataset/index_json.h"
#include "shard/dataset/name_parts.h"

namespace headrace::detail {
namespace {

// Folders that a message names.
constexpr std::size_t kMostShown = 4;

std::string_view folder_of(std::string_view key) {
  const std::size_t slash = key.rfind('/');
  return slash == std::string_view::npos ? std::string_view() : key.substr(0, slash);
}

// Folders of `all` with an index.json of their own, in order.
std::set<std::string_view> indexed_folders(std::span<const ObjectInfo> all) {
  std::set<std::string_view> folders;
  for (const ObjectInfo& object : all) {
    if (base_name(object.key) == kIndexJsonName && object.size_bytes > 0 &&
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

}  // namespace

Status lost_index(const BuildContext& context, const DataObjects& shards,
                  std::span<const ObjectInfo> all) {
  const std::string& url = context.store.url();
  const std::string& first = shards.objects.front().key;
  const IndexJsonDriver& driver = *driver_of(shards.format)->index_json;
  const std::string_view name = driver.title;
  if (!context.options.keys.empty()) {
    return Status(Code::kInvalidArgument,
                  fmt::format("{}: is a shard of {}, which is read as a whole through its {}: open "
                              "the folder",
                              context.store.object_url(first), name, kIndexJsonName));
  }
  const auto folders = indexed_folders(all);
  if (folders.contains(folder_of(first))) {
    return Status(Code::kInvalidArgument,
                  fmt::format("{}: has no {} of its own, but {} shards that are indexed in {}: "
                              "open {}/{}, or a list of such folders",
                              url, kIndexJsonName, name, shown(folders), url, folder_of(first)));
  }
  const bool has_json = std::any_of(all.begin(), all.end(), [](const ObjectInfo& object) {
    return object.key == kIndexJsonName;
  });
  const std::string what =
      has_json ? fmt::format("its {} names no shards: it is damaged, or not theirs", kIndexJsonName)
               : fmt::format("there is no {}", kIndexJsonName);
  return Status(has_json ? Code::kCorrupt : Code::kNotFound,
                fmt::format("{}: holds {} shards ({} and {} more), but {}; {}, format='raw' reads "
                            "them as files",
                            url, name, first, shards.objects.size() - 1, what, driver.remedy));
}

}  // namespace headrace::detail
