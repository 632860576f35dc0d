#include "shard/formats/table/table_driver.h"

#include <algorithm>

namespace headrace::detail {
namespace {

constexpr std::string_view kTableEndings[] = {".parquet", ".arrow"};
constexpr std::string_view kTableKinds[] = {"parquet", "arrow", "lance"};

}  // namespace

constinit const FormatDriver kTableDriver{
    .id = Format::kTable,
    .name = "table",
    .kinds = kTableKinds,
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
    .make = make_table_dataset,
};

}  // namespace headrace::detail
