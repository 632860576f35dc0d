#pragma once
/// \file
/// A dataset of one column whose values all have the same size and lie back to back: tokens, rows
/// of an array. Cutting is a multiplication.
///
/// Place: litdata/, tokens/ and numpy/ make it.
///
/// Threads: as IndexedDataset.
#include <memory>

#include "shard/dataset/indexed_dataset.h"

namespace headrace::detail {

/// Errors: kCorrupt (an index with other columns, or boundaries that are not the values').
Result<std::shared_ptr<const Dataset>> make_fixed_dataset(DatasetParts parts);

}  // namespace headrace::detail
