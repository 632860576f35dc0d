#include "shard/formats/tfrecord/tfrecord_driver.h"

#include "shard/dataset/empty_shard.h"

namespace headrace::detail {
namespace {

constexpr std::string_view kTfRecordEndings[] = {".tfrecord", ".tfrecords", ".tfrecord.gz"};

}  // namespace

constinit const FormatDriver kTfRecordDriver{
    .id = Format::kTfRecord,
    .name = "tfrecord",
    .endings = kTfRecordEndings,
    .looks_like = looks_like_tfrecord,
    .may_be_zlib = true,
    // TensorFlow reads it as no records.
    .may_be_empty =
        [](const DatasetOptions& options, std::string_view key) noexcept {
          return options.lenient && !is_compressed_name(key);
        },
    .empty_hint = " (lenient=True takes it as no records)",
    .reads = {.columns = true, .lenient = true},
    .build = build_tfrecord_index,
    .make = by_parts_alone<make_tfrecord_dataset>,
};

}  // namespace headrace::detail
