#pragma once
/// \file
/// One store over several, for datasets that lie in several places.
///
/// Place: src/store/. Handles follow the Store contract.
#include <memory>
#include <vector>

#include "headrace/status.h"
#include "headrace/store.h"

namespace headrace {

/// A read-only handle over `stores`: the object "<i>/<key>" is `key` of stores[i]. Requests, head()
/// and presign() reach it; a key without such a beginning is kInvalidArgument; list(), writes and
/// copies are kUnsupported. A thread per store waits for its completions once it was asked for
/// something. Errors: kInvalidArgument (no stores).
Result<std::unique_ptr<Store>> route_stores(std::vector<std::unique_ptr<Store>> stores);

}  // namespace headrace
