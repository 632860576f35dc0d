#pragma once
/// \file
/// The Python class _native.Dataset, for the other files here that take one.
#include <vector>

#include "bind.h"
#include "column_converter.h"
#include "headrace/sample_reader.h"
#include "process.h"

namespace headrace {

struct PyDataset {
  Guarded<SampleReader> reader;
  std::vector<ColumnConverter> converters;  // One a column.
};

/// Sample counts of all blocks, in dataset order.
std::vector<std::uint32_t> block_samples(const Dataset& dataset);

}  // namespace headrace
