#pragma once
/// \file
/// Settings of objects from and to Python: mappings with the names of headrace.ObjectSettings.
///
/// Threads: the caller holds the GIL.
#include "bind.h"
#include "headrace/object_settings.h"

namespace headrace {

/// None values: not set. Raises InvalidArgumentError for an unknown name or a value of the wrong
/// kind.
ObjectSettings parse_settings(const nb::dict& fields);

/// A dict of those that are set.
nb::dict make_settings(const ObjectSettings& settings);

}  // namespace headrace
