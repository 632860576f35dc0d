#include "shard/formats/table/table_driver.h"

#include <algorithm>

namespace headrace::detail {
namespace {

constexpr std::string_view kTableEndings[] = {".parquet", ".arrow"};

}  // namespace

constinit const FormatDriver kTableDriver{
    .id = Format::kTable,
    .name = "table",
    .endings = kTableEndings,
    .claims_listing =
        [](std::span<const ObjectInfo> objects) noexcept {
          return std::any_of(objects.begin(), objects.end(), is_lance_manifest);
        },
    .looks_like = looks_like_table,
    .may_lack_mark = true,
    .companion_key = kCommonMetadataKey,
    .reads = {.columns = true, .row_groups_where = true},
    .build = build_table_index,
    .make = [](DatasetParts parts,
               const DatasetOptions&) { return make_table_dataset(std::move(parts)); },
};

}  // namespace headrace::detail
