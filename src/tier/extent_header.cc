#include "tier/extent_header.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string_view>

#include "base/crc32c.h"
#include "base/strings.h"

namespace headrace::tier {
namespace {

constexpr std::string_view kMagic = "HRXT";
constexpr std::uint32_t kVersion = 1;
constexpr std::uint32_t kSealedVersion = 2;
constexpr std::size_t kFixedBytes = 72;
constexpr std::size_t kSumAt = 68;
constexpr std::uint64_t kLeastChunkBytes = std::uint64_t{64} << 10;
constexpr std::uint64_t kMostChunks = 512;
constexpr std::uint64_t kMostSealedChunks = 128;

// What an encrypted file has between its sums and its texts.
constexpr std::size_t kSaltAt = SealKey::kIdBytes;
constexpr std::size_t kHeaderTagAt = kSaltAt + seal::kSaltBytes;
constexpr std::size_t kTagsAt = kHeaderTagAt + seal::kTagBytes;
constexpr std::uint64_t kHeaderBlock = UINT64_MAX;

Status corrupt(std::string_view why) {
  return Status(Code::kCorrupt, "cached file: " + std::string(why));
}

std::uint32_t sum_of_header(std::span<const std::byte> header) noexcept {
  constexpr std::array<std::byte, 4> kZeros{};
  const std::uint32_t before = crc32c(header.first(kSumAt));
  return crc32c(header.subspan(kSumAt + 4), crc32c(kZeros, before));
}

using Tag = std::span<std::byte, seal::kTagBytes>;
using KnownTag = std::span<const std::byte, seal::kTagBytes>;
using Page = std::array<std::byte, kHeaderBytes>;

std::string key_id_bytes(const SealKey& key) {
  std::string bytes;
  from_hex(key.id(), bytes);
  return bytes;
}

/// A header as its own tag covers it. `tag_at`: where that is.
Page covered(std::span<const std::byte> header, std::size_t tag_at) {
  Page page;
  std::copy(header.begin(), header.end(), page.begin());
  std::memset(page.data() + kSumAt, 0, 4);
  std::memset(page.data() + tag_at, 0, seal::kTagBytes);
  return page;
}

/// Copies as much of a text as there is room for behind `end`, and moves that on.
std::uint32_t add_text(std::span<std::byte> header, std::size_t& end, std::string_view text) {
  text = text.substr(0, header.size() - end);
  std::memcpy(header.data() + end, text.data(), text.size());
  end += text.size();
  return static_cast<std::uint32_t>(text.size());
}

}  // namespace

std::uint64_t chunk_bytes_of(std::uint64_t length_bytes, bool is_sealed) noexcept {
  const std::uint64_t most = is_sealed ? kMostSealedChunks : kMostChunks;
  std::uint64_t chunk = kLeastChunkBytes;
  while ((length_bytes - 1) / chunk + 1 > most) chunk *= 2;
  return chunk;
}

HeaderDraft::HeaderDraft(std::uint64_t chunk_bytes, std::uint64_t chunk_count, const SealKey* key)
    : chunk_bytes_(chunk_bytes), chunk_count_(chunk_count), key_(key) {
  if (key == nullptr) return;
  salt_ = seal::random_salt();
  sealer_.emplace(*key, kExtentPurpose, salt_);
}

std::size_t HeaderDraft::seal_at() const noexcept { return kFixedBytes + 4 * chunk_count_; }

Tag HeaderDraft::tag_of(std::uint64_t chunk) noexcept {
  return Tag(page_.data() + seal_at() + kTagsAt + chunk * seal::kTagBytes, seal::kTagBytes);
}

void HeaderDraft::add(std::uint64_t chunk, std::span<std::byte> bytes) {
  if (sealer_) sealer_->seal(chunk, {}, bytes, bytes, tag_of(chunk));
  store_le<std::uint32_t>(page_.data() + kFixedBytes + 4 * chunk, crc32c(bytes));
}

Status HeaderDraft::open(std::uint64_t chunk, std::span<std::byte> bytes) {
  const auto sum = load_le<std::uint32_t>(page_.data() + kFixedBytes + 4 * chunk);
  if (crc32c(bytes) != sum) return corrupt("bytes that do not match their sum");
  if (!sealer_ || sealer_->open(chunk, {}, bytes, bytes, tag_of(chunk))) return {};
  return corrupt("bytes that do not match their tag");
}

void HeaderDraft::finish(const ExtentInfo& info, std::span<std::byte> header) {
  std::byte* const at = page_.data();
  std::memcpy(at, kMagic.data(), kMagic.size());
  store_le<std::uint32_t>(at + 4, sealer_ ? kSealedVersion : kVersion);
  store_le<std::uint32_t>(at + 8, static_cast<std::uint32_t>(chunk_bytes_));
  store_le<std::uint32_t>(at + 12, static_cast<std::uint32_t>(chunk_count_));
  store_le<std::uint64_t>(at + 16, info.name.object.high);
  store_le<std::uint64_t>(at + 24, info.name.object.low);
  store_le<std::uint64_t>(at + 32, info.name.offset_bytes);
  store_le<std::uint64_t>(at + 40, info.name.length_bytes);
  store_le<std::uint64_t>(at + 48, info.object_size_bytes);
  std::size_t end = seal_at() + (sealer_ ? kTagsAt + chunk_count_ * seal::kTagBytes : 0);
  store_le<std::uint32_t>(at + 56, add_text(page_, end, info.etag));
  store_le<std::uint32_t>(at + 60, add_text(page_, end, info.url));
  if (sealer_) {
    const std::string id = key_id_bytes(*key_);
    std::memcpy(at + seal_at(), id.data(), id.size());
    std::copy(salt_.begin(), salt_.end(),
              page_.begin() + static_cast<std::ptrdiff_t>(seal_at() + kSaltAt));
    const std::size_t tag_at = seal_at() + kHeaderTagAt;
    const Page page = covered(page_, tag_at);
    sealer_->seal(kHeaderBlock, page, {}, {}, Tag(at + tag_at, seal::kTagBytes));
  }
  store_le<std::uint32_t>(at + kSumAt, sum_of_header(page_));
  std::copy(page_.begin(), page_.end(), header.begin());
}

void make_header(const ExtentInfo& info, std::span<std::byte> data, std::span<std::byte> header,
                 const SealKey* key) {
  const std::uint64_t chunk_bytes = chunk_bytes_of(data.size(), key != nullptr);
  HeaderDraft draft(chunk_bytes, (data.size() - 1) / chunk_bytes + 1, key);
  for (std::uint64_t at = 0; at < data.size(); at += chunk_bytes)
    draft.add(at / chunk_bytes,
              data.subspan(at, std::min<std::size_t>(chunk_bytes, data.size() - at)));
  draft.finish(info, header);
}

bool ExtentHeader::is_sealed() const noexcept { return half(4) == kSealedVersion; }

std::size_t ExtentHeader::seal_at() const noexcept {
  return kFixedBytes + 4 * std::size_t{half(12)};
}

std::size_t ExtentHeader::texts_at() const noexcept {
  return seal_at() + (is_sealed() ? kTagsAt + seal::kTagBytes * std::size_t{half(12)} : 0);
}

Status ExtentHeader::check(const ExtentName* name) const {
  if (std::memcmp(bytes_.data(), kMagic.data(), kMagic.size()) != 0) return corrupt("no header");
  if (half(4) != kVersion && !is_sealed()) return corrupt("another version");
  if (half(kSumAt) != sum_of_header(bytes_)) return corrupt("the header does not match its sum");
  const ExtentName found = this->name();
  if (name != nullptr && found != *name) return corrupt("of another extent");
  const std::uint64_t length = found.length_bytes;
  if (length == 0 || chunk_bytes() == 0 || half(12) != (length - 1) / chunk_bytes() + 1 ||
      etag_bytes() > kHeaderBytes || url_bytes() > kHeaderBytes ||
      texts_at() + etag_bytes() + url_bytes() > kHeaderBytes)
    return corrupt("a header that contradicts itself");
  return {};
}

Status ExtentHeader::check_key(const SealKey* key, std::optional<seal::Sealer>& sealer) const {
  if (key == nullptr) return is_sealed() ? corrupt("encrypted") : Status();
  if (!is_sealed()) return corrupt("not encrypted");
  const auto fields = bytes_.subspan(seal_at());
  const std::string id = key_id_bytes(*key);
  if (std::memcmp(fields.data(), id.data(), id.size()) != 0) return corrupt("of another key");
  sealer.emplace(*key, kExtentPurpose, fields.subspan(kSaltAt, seal::kSaltBytes));
  const Page page = covered(bytes_, seal_at() + kHeaderTagAt);
  const KnownTag tag(fields.data() + kHeaderTagAt, seal::kTagBytes);
  return sealer->open(kHeaderBlock, page, {}, {}, tag) ? Status()
                                                       : corrupt("a header that was changed");
}

Status ExtentHeader::prove(std::uint64_t chunk, std::span<const std::byte> data) const {
  if (crc32c(data) == half(kFixedBytes + 4 * chunk)) return {};
  return corrupt("bytes that do not match their sum");
}

Status ExtentHeader::open(std::uint64_t chunk, std::span<std::byte> data,
                          seal::Sealer& sealer) const {
  const KnownTag tag(bytes_.data() + seal_at() + kTagsAt + chunk * seal::kTagBytes,
                     seal::kTagBytes);
  return sealer.open(chunk, {}, data, data, tag) ? Status()
                                                 : corrupt("bytes that do not match their tag");
}

ExtentInfo ExtentHeader::info() const {
  const auto* const texts = reinterpret_cast<const char*>(bytes_.data()) + texts_at();
  return {.name = name(),
          .object_size_bytes = object_size_bytes(),
          .url = std::string(texts + etag_bytes(), url_bytes()),
          .etag = std::string(texts, etag_bytes())};
}

}  // namespace headrace::tier
