#pragma once
/// \file
/// StoreOptions from the keyword arguments of the Python classes: one table for all that take them.
#include <map>
#include <string>

#include "bind.h"
#include "headrace/environment.h"
#include "headrace/store.h"

namespace headrace {

/// The options of `fields` (names as in headrace.StoreOptions, times in seconds; None: the
/// default) for a URL. Raises InvalidArgumentError for an unknown name or a value of the wrong
/// kind.
StoreOptions parse_store_options(const std::string& url, const nb::dict& fields);

/// The process environment, with what the caller names in its place.
Environment make_environment(const std::map<std::string, std::string>& overrides);

}  // namespace headrace
