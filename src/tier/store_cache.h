#pragma once
/// \file
/// StoreCache: extents as objects of a store that is nearer than the one with the data. One object
/// an extent, header first: "v1/<bucket>/<name of the extent>" below the root.
///
/// Threads: as RemoteCache.
#include <cstdint>
#include <memory>

#include "headrace/status.h"
#include "headrace/store.h"
#include "tier/remote_cache.h"

namespace headrace::tier {

/// `read_bytes`: memory for what is being read; reads wait for it. Errors: kInvalidArgument (too
/// little memory).
Result<std::unique_ptr<RemoteCache>> open_store_cache(std::unique_ptr<Store> store,
                                                      std::uint64_t read_bytes);

}  // namespace headrace::tier
