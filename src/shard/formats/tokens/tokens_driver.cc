#include "shard/formats/tokens/tokens_driver.h"

#include "shard/dataset/fingerprint.h"
#include "shard/formats/tokens/idx_layout.h"
#include "shard/formats/tokens/megatron.h"

namespace headrace::detail {
namespace {

constexpr std::string_view kTokenSideEndings[] = {".idx"};

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
