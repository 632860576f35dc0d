#include "tier/extent_name.h"

#include <xxhash.h>

#include <array>
#include <charconv>
#include <cstddef>

namespace headrace::tier {
namespace {

constexpr std::size_t kIdDigits = 32;
constexpr std::size_t kBucketDigits = 3;

void append_hex(std::string& out, std::uint64_t value, std::size_t width) {
  std::array<char, 16> digits;
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), value, 16).ptr;
  const auto count = static_cast<std::size_t>(end - digits.data());
  if (count < width) out.append(width - count, '0');
  out.append(digits.data(), count);
}

/// All of `text` as lower-case hexadecimal digits, without leading zeros unless it is `is_padded`:
/// every name is spelled in one way.
bool parse_hex(std::string_view text, bool is_padded, std::uint64_t& out) noexcept {
  if (text.empty() || text.size() > 16) return false;
  if (!is_padded && text.size() > 1 && text.front() == '0') return false;
  for (const char c : text) {
    if ((c < '0' || c > '9') && (c < 'a' || c > 'f')) return false;
  }
  return std::from_chars(text.data(), text.data() + text.size(), out, 16).ec == std::errc();
}

}  // namespace

ObjectId object_id(std::string_view origin, std::string_view url, std::string_view etag) {
  // Lengths between the texts: no two triples have the same bytes.
  std::string all;
  all.reserve(origin.size() + url.size() + etag.size() + 24);
  for (const std::string_view text : {origin, url, etag}) {
    const std::uint64_t size = text.size();
    all.append(reinterpret_cast<const char*>(&size), sizeof(size));
    all.append(text);
  }
  const XXH128_hash_t hash = XXH3_128bits(all.data(), all.size());
  return {hash.high64, hash.low64};
}

std::string bucket_name(std::uint32_t bucket) {
  std::string name;
  append_hex(name, bucket, kBucketDigits);
  return name;
}

std::optional<std::uint32_t> parse_bucket_name(std::string_view name) noexcept {
  std::uint64_t bucket = 0;
  if (name.size() != kBucketDigits || !parse_hex(name, true, bucket)) return std::nullopt;
  return static_cast<std::uint32_t>(bucket);
}

std::string file_name(const ExtentName& extent) {
  std::string name;
  name.reserve(kIdDigits + 34);
  append_hex(name, extent.object.high, 16);
  append_hex(name, extent.object.low, 16);
  name += '-';
  append_hex(name, extent.offset_bytes, 1);
  name += '-';
  append_hex(name, extent.length_bytes, 1);
  return name;
}

std::string extent_path(const ExtentName& extent) {
  return bucket_name(bucket_of(extent.object)) + '/' + file_name(extent);
}

std::optional<ExtentName> parse_file_name(std::string_view name) noexcept {
  if (name.size() < kIdDigits + 4 || name[kIdDigits] != '-') return std::nullopt;
  const std::string_view ranges = name.substr(kIdDigits + 1);
  const std::size_t dash = ranges.find('-');
  if (dash == std::string_view::npos) return std::nullopt;
  ExtentName extent;
  const bool is_good = parse_hex(name.substr(0, 16), true, extent.object.high) &&
                       parse_hex(name.substr(16, 16), true, extent.object.low) &&
                       parse_hex(ranges.substr(0, dash), false, extent.offset_bytes) &&
                       parse_hex(ranges.substr(dash + 1), false, extent.length_bytes);
  if (!is_good || extent.length_bytes == 0) return std::nullopt;
  if (extent.offset_bytes > UINT64_MAX - extent.length_bytes) return std::nullopt;
  return extent;
}

std::uint64_t hash_of(const ExtentName& extent) noexcept {
  const std::array<std::uint64_t, 4> words = {extent.object.high, extent.object.low,
                                              extent.offset_bytes, extent.length_bytes};
  return XXH3_64bits(words.data(), sizeof(words));
}

}  // namespace headrace::tier
