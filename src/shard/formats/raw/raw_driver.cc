#include "shard/formats/raw/raw_driver.h"

#include "shard/dataset/fingerprint.h"
#include "shard/dataset/listing.h"
#include "shard/formats/raw/raw_layout.h"

namespace headrace::detail {
namespace {

// Labels are the same whoever made them; of other options an index does not tell enough.
bool raw_is_as_asked(const DatasetOptions& options, std::string_view layout) {
  if (options.labels.empty() || !options.keys.empty()) return !shapes_index(options, Format::kRaw);
  return layout == kFolderLabels;
}

void add_raw_layout(ContentDigest& digest, const IndexView& view) {
  const auto manifest = manifest_of(view.layout());
  if (!manifest) return digest.add(view.layout());
  digest.add_file(*manifest);
  for (std::uint64_t i = 0; i < view.sample_count(); ++i) digest.add(view.key_of(i));
}

}  // namespace

constinit const FormatDriver kRawDriver{
    .id = Format::kRaw,
    .name = "raw",
    .takes_all = true,
    .may_be_empty = [](const DatasetOptions&, std::string_view) noexcept { return true; },
    .reads = {.labels = true},
    .is_as_asked = raw_is_as_asked,
    .least_columns = 2,
    .sample_is_object = true,
    .add_layout = add_raw_layout,
    // A sample is the file; its name comes from the index.
    .overhead_bytes = [](const SampleShape& shape) noexcept -> std::optional<std::uint64_t> {
      return shape.column == "data" ? std::make_optional<std::uint64_t>(0) : std::nullopt;
    },
    .build = build_raw_index,
    .make = by_parts_alone<make_raw_dataset>,
};

}  // namespace headrace::detail
