#pragma once
/// \file
/// Quarantine: the samples of a dataset that are known to be bad, as `headrace verify --quarantine`
/// lists them. Pure.
///
/// Place: src/feed/. LoaderOptions::quarantine takes the ranges.
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "headrace/dataset.h"
#include "headrace/status.h"

namespace headrace {

/// Dataset positions [begin, end).
struct SampleRange {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};

/// A row of a list: VerifyProblem, without what is for people.
struct QuarantineEntry {
  std::string key = {};        ///< Object, relative to the root; empty: `position` says it all.
  std::int64_t position = -1;  ///< First sample; -1: all samples of the shard `key`.
  std::uint64_t sample_count = 1;
};

/// The samples that a list names, sorted, neighbours joined. An index file (`index.hri`) holds no
/// samples. O(entries * log B + S).
/// Errors: kInvalidArgument (a position beyond the dataset, a key that no shard has, or that the
/// position does not lie in: a list of another dataset).
Result<std::vector<SampleRange>> find_quarantined(const Dataset& dataset,
                                                  std::span<const QuarantineEntry> entries);

/// Sorts and joins. O(n log n).
std::vector<SampleRange> joined(std::vector<SampleRange> ranges);

}  // namespace headrace
