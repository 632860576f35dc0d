#pragma once
/// \file
/// S3Store: the Store contract over a TransferEngine that speaks S3Protocol.
///
/// Threads: as class Store says. All handles of one store share protocol and engine.
#include <memory>

#include "headrace/environment.h"
#include "headrace/store.h"
#include "store/url.h"

namespace headrace::s3 {

/// Opens s3://bucket[/prefix]; contacts nobody. Errors: those of open_store().
Result<std::unique_ptr<Store>> open_s3_store(const StoreOptions& options, const StoreUrl& url,
                                             const Environment& environment);

}  // namespace headrace::s3
