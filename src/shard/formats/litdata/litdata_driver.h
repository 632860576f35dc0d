#pragma once
/// \file
/// LitData: chunks that an index.json describes.
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

extern const FormatDriver kLitDataDriver;

bool looks_like_litdata(std::span<const std::byte> head) noexcept;  ///< Of a few items or more.

/// `source` is the index.json whose text is `json`. Errors: kCorrupt, kUnsupported (pickles unless
/// allowed, RSA), kDenied (encrypted and no or a wrong password).
Result<std::string> build_litdata_index(const BuildContext& context, std::string_view json,
                                        const IndexSource& source);

Result<std::shared_ptr<const Dataset>> make_litdata_dataset(DatasetParts parts,
                                                            const DatasetOptions& options);

}  // namespace headrace::detail
