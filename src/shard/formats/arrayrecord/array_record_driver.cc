#include "shard/formats/arrayrecord/array_record_driver.h"

namespace headrace::detail {
namespace {

constexpr std::string_view kArrayRecordEndings[] = {".array_record"};

}  // namespace

constinit const FormatDriver kArrayRecordDriver{
    .id = Format::kArrayRecord,
    .name = "arrayrecord",
    .endings = kArrayRecordEndings,
    .looks_like = looks_like_array_record,
    .build = build_array_record_index,
    .make = by_parts_alone<make_array_record_dataset>,
};

}  // namespace headrace::detail
