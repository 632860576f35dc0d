#pragma once
/// \file
/// What an extent of the cache is called. Pure.
#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace headrace::tier {

/// A version of an object: XXH3-128 of where its store is, its URL and its ETag.
struct ObjectId {
  std::uint64_t high = 0, low = 0;
  friend auto operator<=>(const ObjectId&, const ObjectId&) = default;
};

/// `origin`: origin_of_kept(). The texts may hold any bytes.
ObjectId object_id(std::string_view origin, std::string_view url, std::string_view etag);

/// Bytes [offset, offset + length) of an object.
struct ExtentName {
  ObjectId object;
  std::uint64_t offset_bytes = 0, length_bytes = 0;
  friend auto operator<=>(const ExtentName&, const ExtentName&) = default;
};

/// Directories that extents lie in: all of an object in one.
inline constexpr std::uint32_t kBucketCount = 4096;
inline std::uint32_t bucket_of(const ObjectId& object) noexcept {
  return static_cast<std::uint32_t>(object.high >> 52);
}
/// "0a3".
std::string bucket_name(std::uint32_t bucket);
/// None for names of anything else.
std::optional<std::uint32_t> parse_bucket_name(std::string_view name) noexcept;

/// "<32 digits>-<offset>-<length>", all hexadecimal.
std::string file_name(const ExtentName& extent);
/// Bucket and file, as seen from the directory with the buckets: "0a3/<file>".
std::string extent_path(const ExtentName& extent);
/// None for names of anything else.
std::optional<ExtentName> parse_file_name(std::string_view name) noexcept;

/// For locks and tables.
std::uint64_t hash_of(const ExtentName& extent) noexcept;

}  // namespace headrace::tier
