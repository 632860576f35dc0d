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
    .make = [](DatasetParts parts,
               const DatasetOptions&) { return make_numpy_dataset(std::move(parts)); },
};

}  // namespace headrace::detail
