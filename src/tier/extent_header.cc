#include "tier/extent_header.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string_view>

#include "base/crc32c.h"

namespace headrace::tier {
namespace {

constexpr std::string_view kMagic = "HRXT";
constexpr std::uint32_t kVersion = 1;
constexpr std::size_t kFixedBytes = 72;
constexpr std::size_t kSumAt = 68;
constexpr std::uint64_t kLeastChunkBytes = std::uint64_t{64} << 10;
constexpr std::uint64_t kMostChunks = 512;

Status corrupt(std::string_view why) {
  return Status(Code::kCorrupt, "cached file: " + std::string(why));
}

std::uint32_t sum_of_header(std::span<const std::byte> header) noexcept {
  constexpr std::array<std::byte, 4> kZeros{};
  const std::uint32_t before = crc32c(header.first(kSumAt));
  return crc32c(header.subspan(kSumAt + 4), crc32c(kZeros, before));
}

/// Copies as much of a text as there is room for behind `end`, and moves that on.
std::uint32_t add_text(std::span<std::byte> header, std::size_t& end, std::string_view text) {
  text = text.substr(0, header.size() - end);
  std::memcpy(header.data() + end, text.data(), text.size());
  end += text.size();
  return static_cast<std::uint32_t>(text.size());
}

}  // namespace

std::uint64_t chunk_bytes_of(std::uint64_t length_bytes) noexcept {
  std::uint64_t chunk = kLeastChunkBytes;
  while ((length_bytes - 1) / chunk + 1 > kMostChunks) chunk *= 2;
  return chunk;
}

void make_header(const ExtentInfo& info, std::span<const std::byte> data,
                 std::span<std::byte> header) {
  std::byte* const at = header.data();
  std::memset(at, 0, header.size());
  const std::uint64_t chunk_bytes = chunk_bytes_of(data.size());
  std::uint32_t chunk = 0;
  std::size_t end = kFixedBytes;
  for (auto rest = data; !rest.empty(); ++chunk, end += 4) {
    const auto bytes = rest.first(std::min<std::size_t>(chunk_bytes, rest.size()));
    store_le<std::uint32_t>(at + end, crc32c(bytes));
    rest = rest.subspan(bytes.size());
  }
  std::memcpy(at, kMagic.data(), kMagic.size());
  store_le<std::uint32_t>(at + 4, kVersion);
  store_le<std::uint32_t>(at + 8, static_cast<std::uint32_t>(chunk_bytes));
  store_le<std::uint32_t>(at + 12, chunk);
  store_le<std::uint64_t>(at + 16, info.name.object.high);
  store_le<std::uint64_t>(at + 24, info.name.object.low);
  store_le<std::uint64_t>(at + 32, info.name.offset_bytes);
  store_le<std::uint64_t>(at + 40, info.name.length_bytes);
  store_le<std::uint64_t>(at + 48, info.object_size_bytes);
  store_le<std::uint32_t>(at + 56, add_text(header, end, info.etag));
  store_le<std::uint32_t>(at + 60, add_text(header, end, info.url));
  store_le<std::uint32_t>(at + kSumAt, sum_of_header(header));
}

std::size_t ExtentHeader::texts_at() const noexcept {
  return kFixedBytes + 4 * std::size_t{half(12)};
}

Status ExtentHeader::check(const ExtentName* name) const {
  if (std::memcmp(bytes_.data(), kMagic.data(), kMagic.size()) != 0) return corrupt("no header");
  if (half(4) != kVersion) return corrupt("another version");
  if (half(kSumAt) != sum_of_header(bytes_)) return corrupt("the header does not match its sum");
  const ExtentName found = this->name();
  if (name != nullptr && found != *name) return corrupt("of another extent");
  const std::uint64_t length = found.length_bytes;
  if (length == 0 || chunk_bytes() != chunk_bytes_of(length) ||
      half(12) != (length - 1) / chunk_bytes() + 1 || etag_bytes() > kHeaderBytes ||
      url_bytes() > kHeaderBytes || texts_at() + etag_bytes() + url_bytes() > kHeaderBytes)
    return corrupt("a header that contradicts itself");
  return {};
}

Status ExtentHeader::prove(std::uint64_t chunk, std::span<const std::byte> data) const {
  if (crc32c(data) == half(kFixedBytes + 4 * chunk)) return {};
  return corrupt("bytes that do not match their sum");
}

ExtentInfo ExtentHeader::info() const {
  const auto* const texts = reinterpret_cast<const char*>(bytes_.data()) + texts_at();
  return {.name = name(),
          .object_size_bytes = object_size_bytes(),
          .url = std::string(texts + etag_bytes(), url_bytes()),
          .etag = std::string(texts, etag_bytes())};
}

}  // namespace headrace::tier
