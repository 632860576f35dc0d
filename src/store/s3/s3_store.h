#pragma once
/// \file
/// S3Store: the Store contract over a TransferEngine that speaks S3Protocol.
///
/// Threads: as class Store says. All handles of one store share protocol and engine.
#include <memory>

#include "auth/web_client.h"
#include "headrace/environment.h"
#include "headrace/store.h"
#include "store/s3/s3_config.h"
#include "store/url.h"

namespace headrace::s3 {

/// What options, environment and configuration files say of a bucket, with a provider of its
/// credentials. Errors: as open_s3_store().
Result<S3Config> resolve_s3_config(const StoreOptions& options, const StoreUrl& url,
                                   const Environment& environment,
                                   const std::shared_ptr<auth::WebClient>& web);

/// Opens s3://bucket[/prefix]; contacts nobody. `web` fetches sessions of directory buckets.
/// Errors: those of open_store(); kUnsupported (a directory bucket without `web`).
Result<std::unique_ptr<Store>> open_s3_store(const StoreOptions& options, const StoreUrl& url,
                                             const Environment& environment,
                                             std::shared_ptr<auth::WebClient> web = nullptr);

}  // namespace headrace::s3
