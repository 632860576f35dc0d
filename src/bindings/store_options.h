#pragma once
/// \file
/// StoreOptions from the keyword arguments of the Python classes: one table for all that take them.
#include <string>

#include "bind.h"
#include "headrace/store.h"

namespace headrace {

/// The options of `fields` (names as in headrace.StoreOptions, times in seconds; None: the
/// default) for a URL. Raises InvalidArgumentError for an unknown name or a value of the wrong
/// kind.
StoreOptions parse_store_options(const std::string& url, const nb::dict& fields);

}  // namespace headrace
