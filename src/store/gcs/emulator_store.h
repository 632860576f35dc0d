#pragma once
/// \file
/// EmulatorStore: the Store contract over an emulator of Google Cloud Storage
/// (STORAGE_EMULATOR_HOST), in the JSON API, which is all that emulators speak. For tests of
/// programs, not for real buckets: listings are read whole for every page, and an upload's parts
/// are objects below
/// ".headrace-uploads/" of the bucket, composed at the end; the uploads under way are known to this
/// store and its handles only.
///
/// Threads: as class Store says.
#include <memory>

#include "headrace/store.h"
#include "store/gcs/gcs_config.h"

namespace headrace::gcs {

/// Contacts nobody. Errors: those of TransferEngine::create().
Result<std::unique_ptr<Store>> open_emulator_store(const StoreOptions& options,
                                                   const Environment& environment,
                                                   GcsConfig config);

}  // namespace headrace::gcs
