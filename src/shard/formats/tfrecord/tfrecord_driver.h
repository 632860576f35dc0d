#pragma once
/// \file
/// TFRecord: records with checksums, tf.train.Examples or any bytes.
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

extern const FormatDriver kTfRecordDriver;

bool looks_like_tfrecord(std::span<const std::byte> head) noexcept;  ///< Checks the length's CRC.

Result<std::string> build_tfrecord_index(const BuildContext& context,
                                         const std::vector<ObjectInfo>& objects);

Result<std::shared_ptr<const Dataset>> make_tfrecord_dataset(DatasetParts parts);

}  // namespace headrace::detail
