#pragma once
/// \file
/// Objects in this process's memory ("memory://name"), for tests and small things. Each opened
/// store has its own content, shared by its handles; the name is only a name, and no two stores
/// give one ETag. Requests run inside submit(). Not part of the memory limit.
#include <memory>

#include "headrace/store.h"

namespace headrace {

/// Uses url, default_timeout, queue_capacity, max_in_flight and clock of `options`.
/// Errors: kInvalidArgument (not a memory URL).
Result<std::unique_ptr<Store>> open_memory_store(const StoreOptions& options);

}  // namespace headrace
