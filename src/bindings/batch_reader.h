#pragma once
/// \file
/// A batch's way into another process: the text that says where its parts lie in memory that both
/// map, and the batch that is made of it there.
///
/// Threads: the caller holds the GIL.
#include <optional>
#include <span>

#include "batch_owner.h"
#include "bind.h"
#include "column_converter.h"

namespace headrace {

/// Columns and the rest as a headrace Batch, whose arrays share the ownership.
nb::object make_batch(std::span<const ColumnConverter> converters, const nb::object& batch_type,
                      const SharedBatch& owner);

/// Where the batch lies in the file of its memory, for BatchReader; nullopt: other processes cannot
/// map it.
std::optional<nb::bytes> place_of(const Batch& batch);

}  // namespace headrace
