#include "shard/formats/csv/csv_driver.h"

#include "shard/formats/csv/csv_layout.h"
#include "shard/formats/text/text_driver.h"

namespace headrace::detail {

constinit const FormatDriver kCsvDriver{
    .id = Format::kCsv,
    .name = "csv",
    .claims_name = [](std::string_view key) noexcept { return csv_delimiter_of(key).has_value(); },
    .may_lack_mark = true,
    .may_describe_others = true,
    .mixed_hint = ", or manifest= when it is about the other files",
    .reads = {.columns = true},
    .build = build_csv_index,
    .make = by_parts_alone<make_text_dataset>,
};

}  // namespace headrace::detail
