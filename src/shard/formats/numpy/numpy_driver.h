#pragma once
/// \file
/// `.npy` and `.npz`: the first axis counts samples.
///
/// Threads: functions; a build runs in the calling thread.
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "shard/dataset/build.h"
#include "shard/dataset/format_driver.h"
#include "shard/dataset/indexed_dataset.h"

namespace headrace::detail {

extern const FormatDriver kNumpyDriver;

bool looks_like_numpy(std::span<const std::byte> head) noexcept;  ///< `.npy`, or a zip (`.npz`).

Result<std::string> build_numpy_index(const BuildContext& context,
                                      const std::vector<ObjectInfo>& objects);

Result<std::shared_ptr<const Dataset>> make_numpy_dataset(DatasetParts parts);

}  // namespace headrace::detail
