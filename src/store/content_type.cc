// Names that programs of the vendors know, and those of this trade's files. Sources: IANA's
// registry of media types; where it has none, the word that is in use (as Python's mimetypes, which
// the vendors' command lines ask).
#include <algorithm>
#include <array>
#include <utility>

#include "headrace/object_settings.h"

namespace headrace {
namespace {

// Sorted by extension.
constexpr auto kTypes = std::to_array<std::pair<std::string_view, std::string_view>>({
    {"arrow", "application/vnd.apache.arrow.file"},
    {"avi", "video/x-msvideo"},
    {"bmp", "image/bmp"},
    {"bz2", "application/x-bzip2"},
    {"css", "text/css"},
    {"csv", "text/csv"},
    {"flac", "audio/flac"},
    {"gif", "image/gif"},
    {"gz", "application/gzip"},
    {"h5", "application/x-hdf5"},
    {"htm", "text/html"},
    {"html", "text/html"},
    {"ico", "image/vnd.microsoft.icon"},
    {"jpeg", "image/jpeg"},
    {"jpg", "image/jpeg"},
    {"js", "text/javascript"},
    {"json", "application/json"},
    {"jsonl", "application/jsonl"},
    {"log", "text/plain"},
    {"m4a", "audio/mp4"},
    {"md", "text/markdown"},
    {"mjs", "text/javascript"},
    {"mov", "video/quicktime"},
    {"mp3", "audio/mpeg"},
    {"mp4", "video/mp4"},
    {"mpeg", "video/mpeg"},
    {"ndjson", "application/x-ndjson"},
    {"ogg", "audio/ogg"},
    {"parquet", "application/vnd.apache.parquet"},
    {"pdf", "application/pdf"},
    {"png", "image/png"},
    {"py", "text/x-python"},
    {"svg", "image/svg+xml"},
    {"tar", "application/x-tar"},
    {"tgz", "application/gzip"},
    {"tif", "image/tiff"},
    {"tiff", "image/tiff"},
    {"toml", "application/toml"},
    {"tsv", "text/tab-separated-values"},
    {"txt", "text/plain"},
    {"wasm", "application/wasm"},
    {"wav", "audio/x-wav"},
    {"webm", "video/webm"},
    {"webp", "image/webp"},
    {"xml", "application/xml"},
    {"xz", "application/x-xz"},
    {"yaml", "application/yaml"},
    {"yml", "application/yaml"},
    {"zip", "application/zip"},
    {"zst", "application/zstd"},
});
static_assert(std::is_sorted(kTypes.begin(), kTypes.end()));

constexpr std::size_t kLongestExtension = 8;

}  // namespace

std::string_view guess_content_type(std::string_view key) noexcept {
  key.remove_prefix(key.rfind('/') + 1);
  const std::size_t dot = key.rfind('.');
  if (dot == std::string_view::npos || dot == 0) return {};
  key.remove_prefix(dot + 1);
  if (key.size() > kLongestExtension) return {};
  std::array<char, kLongestExtension> room;
  std::transform(key.begin(), key.end(), room.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  const std::string_view extension(room.data(), key.size());
  const auto row = std::lower_bound(
      kTypes.begin(), kTypes.end(), extension,
      [](const auto& type, std::string_view wanted) { return type.first < wanted; });
  return row != kTypes.end() && row->first == extension ? row->second : std::string_view();
}

}  // namespace headrace
