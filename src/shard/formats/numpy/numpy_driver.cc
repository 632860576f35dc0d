#include "shard/formats/numpy/numpy_driver.h"

namespace headrace::detail {
namespace {

constexpr std::string_view kNumpyEndings[] = {".npy", ".npz"};

}  // namespace

constinit const FormatDriver kNumpyDriver{
    .id = Format::kNumpy,
    .name = "numpy",
    .endings = kNumpyEndings,
    .looks_like = looks_like_numpy,
    .reads = {.columns = true},
    .build = build_numpy_index,
    .make = by_parts_alone<make_numpy_dataset>,
};

}  // namespace headrace::detail
