#include "shard/listing.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>

#include "shard/index/hri.h"

namespace headrace::detail {
namespace {

bool ends_with_any(std::string_view key, std::initializer_list<std::string_view> endings) {
  return std::any_of(endings.begin(), endings.end(),
                     [key](std::string_view e) { return key.ends_with(e); });
}

bool is_tar(std::string_view key) { return key.ends_with(".tar"); }

bool is_compressed_tar(std::string_view key) {
  return ends_with_any(key, {".tar.gz", ".tgz", ".tar.bz2", ".tbz2", ".tar.xz", ".txz", ".tar.zst",
                             ".tar.zstd", ".tar.lz4"});
}

bool is_sidecar(std::string_view key) {
  return ends_with_any(
      key, {".json", ".jsonl", ".idx", ".txt", ".md", ".yaml", ".yml", ".sqlite", ".hri"});
}

bool is_hidden(std::string_view key) {
  return key.starts_with('.') || key.find("/.") != std::string_view::npos;
}

bool is_candidate(const ObjectInfo& object) {
  const std::string_view key = object.key;
  return !key.empty() && !key.ends_with('/') && !is_hidden(key) && key != kIndexName;
}

Status compressed_tar(const std::string& key) {
  return Status(
      Code::kUnsupported,
      fmt::format(
          "{}: compressed tar files cannot be read at random; unpack them (gunzip), or open with "
          "format='raw' to get whole files",
          key));
}

}  // namespace

Result<DataObjects> choose_objects(std::vector<ObjectInfo> listing, Format wanted,
                                   const std::string& url) {
  std::erase_if(listing, [](const ObjectInfo& object) { return !is_candidate(object); });
  if (listing.empty())
    return Status(Code::kNotFound, fmt::format("{}: no dataset there (no files)", url));
  std::sort(listing.begin(), listing.end(),
            [](const ObjectInfo& a, const ObjectInfo& b) { return a.key < b.key; });
  if (wanted == Format::kRaw) return DataObjects{Format::kRaw, std::move(listing)};

  const ObjectInfo* tar = nullptr;
  const ObjectInfo* compressed = nullptr;
  const ObjectInfo* other = nullptr;
  for (const ObjectInfo& object : listing) {
    if (is_tar(object.key)) {
      if (tar == nullptr) tar = &object;
    } else if (is_compressed_tar(object.key)) {
      if (compressed == nullptr) compressed = &object;
    } else if (!is_sidecar(object.key) && other == nullptr) {
      other = &object;
    }
  }
  if (tar == nullptr && compressed == nullptr) {
    if (wanted == Format::kAuto) return DataObjects{Format::kRaw, std::move(listing)};
    return Status(Code::kNotFound,
                  fmt::format("{}: no .tar files there, but {}", url, listing.front().key));
  }
  if (wanted == Format::kAuto && other != nullptr) {
    return Status(
        Code::kInvalidArgument,
        fmt::format(
            "{}: holds tar files ({}) and others ({}); say which with format='webdataset' or "
            "format='raw'",
            url, tar != nullptr ? tar->key : compressed->key, other->key));
  }
  if (compressed != nullptr) return compressed_tar(fmt::format("{}/{}", url, compressed->key));
  std::erase_if(listing, [](const ObjectInfo& object) { return !is_tar(object.key); });
  return DataObjects{Format::kWebDataset, std::move(listing)};
}

std::string manifest_of(const DataObjects& data) {
  XXH3_state_t* hash = XXH3_createState();
  XXH3_128bits_reset(hash);
  for (const ObjectInfo& object : data.objects) {
    const std::string line =
        fmt::format("{}\n{}\n{}\n", object.key, object.etag, object.size_bytes);
    XXH3_128bits_update(hash, line.data(), line.size());
  }
  const XXH128_hash_t digest = XXH3_128bits_digest(hash);
  XXH3_freeState(hash);
  return fmt::format("{} {:016x}{:016x}", format_name(data.format), digest.high64, digest.low64);
}

}  // namespace headrace::detail
