#include "shard/formats/tokens/tokens_driver.h"

#include <algorithm>

#include "shard/dataset/fingerprint.h"
#include "shard/formats/tokens/idx_layout.h"
#include "shard/formats/tokens/megatron.h"

namespace headrace::detail {
namespace {

constexpr std::string_view kTokenSideEndings[] = {".idx"};

// Few or large `.bin` files are flat tokens more often than samples: nanoGPT's smallest set is one
// of 604 KB and one of 72 KB. Scans of a lidar are `.bin` files too, thousands of some 2 MB.
constexpr std::size_t kFewFiles = 16;
constexpr std::uint64_t kLargeOfFew = 256 << 10;
constexpr std::uint64_t kLargeOfMany = 8 << 20;

/// Beside what they were made of and notes (nanoGPT's folders hold their text), they are most of
/// the bytes.
bool may_be_tokens(std::span<const ObjectInfo> objects) noexcept {
  std::uint64_t total = 0;
  std::uint64_t others = 0;
  std::uint64_t largest = 0;
  std::size_t count = 0;
  for (const ObjectInfo& object : objects) {
    if (!object.key.ends_with(".bin")) {
      others += object.size_bytes;
      continue;
    }
    ++count;
    total += object.size_bytes;
    largest = std::max(largest, object.size_bytes);
  }
  if (count == 0 || total < others) return false;
  return count <= kFewFiles ? largest >= kLargeOfFew : total / count >= kLargeOfMany;
}

void add_tokens_layout(ContentDigest& digest, const IndexView& view) {
  const auto files = parse_idx_layout(view.layout());
  if (view.layout().empty() || !files) return digest.add(view.layout());
  for (const IndexSource& file : *files) digest.add_file(file);
}

}  // namespace

constinit const FormatDriver kTokensDriver{
    .id = Format::kTokens,
    .name = "tokens",
    .may_lack_mark = true,
    .is_never_compressed = true,
    .may_be_listing = may_be_tokens,
    .unsure_hint = "flat tokens (format='tokens' with tokens_per_sample=)",
    .side_endings = kTokenSideEndings,
    .side_key =
        [](std::string_view key) { return key.ends_with(".bin") ? idx_key(key) : std::string(); },
    .side_mark = kMegatronMagic,
    .side_sources = parse_idx_layout,
    // Its builder sees whether an `.idx` says so.
    .may_be_empty = [](const DatasetOptions&, std::string_view) noexcept { return true; },
    .reads = {.tokens = true},
    .add_layout = add_tokens_layout,
    .overhead_bytes =
        [](const SampleShape&) noexcept { return std::make_optional<std::uint64_t>(0); },
    .build = build_tokens_index,
    .make = by_parts_alone<make_tokens_dataset>,
};

}  // namespace headrace::detail
