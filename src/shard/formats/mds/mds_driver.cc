#include "shard/formats/mds/mds_driver.h"

#include "shard/formats/mds/mds_encoding.h"
#include "shard/formats/mds/mds_names.h"

namespace headrace::detail {
namespace {

Result<std::string> mds_index_of(const BuildContext& context, Result<MdsIndex> index,
                                 const IndexSource& source) {
  if (!index) return std::move(index).error().annotate(context.store.url());
  return build_mds_index(context, *index, source);
}

constexpr IndexJsonDriver kMdsIndexJson{
    .title = "MDS",
    .list = "shards",
    .remedy = "`headrace index --rebuild` makes one from MDS shards",
    .hint = "; `headrace index --rebuild` makes one",
    .claims_side_file = is_meta_of_lines,
    .build =
        [](const BuildContext& context, std::string_view json, const IndexSource& source) {
          return mds_index_of(context, parse_mds_index(json, context.options.allow_unsafe), source);
        },
    .build_large =
        [](const BuildContext& context, const ObjectInfo& info, const IndexSource& source) {
          return mds_index_of(context, read_mds_index(context, info), source);
        },
};

Status refuse_pickles(const std::vector<Column>& columns) {
  for (Column column : columns) HEADRACE_TRY(describe_mds_column(column, false));
  return Status();
}

}  // namespace

constinit const FormatDriver kMdsDriver{
    .id = Format::kMds,
    .name = "mds",
    .claims_name = is_mds_name,
    .looks_like = looks_like_mds,
    .refuse_unsafe = refuse_pickles,
    // A u32 for each size that varies.
    .overhead_bytes = [](const SampleShape& shape) noexcept -> std::optional<std::uint64_t> {
      if (shape.varying_count != 1) return std::nullopt;
      return shape.fixed_bytes + 4;
    },
    .index_json = &kMdsIndexJson,
    .make = by_parts_alone<make_mds_dataset>,
};

}  // namespace headrace::detail
