#pragma once
/// \file
/// A batch of the engine as Python's: of this process, or of another that shares its memory.
///
/// Threads: the caller holds the GIL.
#include <span>

#include "batch_owner.h"
#include "bind.h"
#include "column_converter.h"
#include "headrace/mapped_batch.h"

namespace headrace {

/// Columns and the rest as a headrace Batch, whose arrays share the ownership.
nb::object make_batch(std::span<const ColumnConverter> converters, const nb::object& batch_type,
                      const SharedBatch& owner);

}  // namespace headrace
