#pragma once
/// \file
/// WebStore: a plain HTTP(S) server, read-only, as a Store over a TransferEngine that speaks
/// WebProtocol.
///
/// Threads: as class Store says. All handles of one store share protocol and engine.
#include <memory>

#include "headrace/store.h"

namespace headrace::web {

/// Opens http(s)://host[:port][/path][?query]; contacts nobody. Errors: those of open_store().
Result<std::unique_ptr<Store>> open_web_store(const StoreOptions& options,
                                              const Environment& environment);

}  // namespace headrace::web
