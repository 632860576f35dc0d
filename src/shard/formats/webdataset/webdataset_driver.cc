#include "shard/formats/webdataset/webdataset_driver.h"

namespace headrace::detail {
namespace {

constexpr std::string_view kTarEndings[] = {".tar",     ".tar.gz",  ".tgz",
                                            ".tar.zst", ".tar.bz2", ".tar.xz"};
constexpr std::string_view kTarSideEndings[] = {".idx"};  // Of DALI, and of Energon.

}  // namespace

constinit const FormatDriver kWebDatasetDriver{
    .id = Format::kWebDataset,
    .name = "webdataset",
    .endings = kTarEndings,
    .looks_like = looks_like_tar,
    .marked_kind = ".tar",
    .side_endings = kTarSideEndings,
    .reads = {.lenient = true},
    .least_columns = 1,
    .build = build_webdataset_index,
    .make = by_parts_alone<make_webdataset>,
};

}  // namespace headrace::detail
