#pragma once
/// \file
/// GcsStore: the Store contract over a TransferEngine that speaks GcsProtocol.
///
/// Threads: as class Store says. All handles of one store share protocol and engine.
#include <memory>

#include "auth/google_credentials.h"
#include "auth/web_client.h"
#include "headrace/environment.h"
#include "headrace/store.h"
#include "store/gcs/gcs_config.h"
#include "store/url.h"

namespace headrace::gcs {

/// Where a bucket is and who asks. `web` fetches tokens. Errors: as open_gcs_store().
Result<GcsConfig> resolve_gcs_config(const StoreOptions& options, const StoreUrl& url,
                                     const Environment& environment,
                                     std::shared_ptr<auth::WebClient> web);

/// Opens gs://bucket[/prefix] or gcs://...; contacts nobody. `web` fetches tokens. Errors: those of
/// open_store(); kUnsupported when the credentials need a token and there is no `web`.
Result<std::unique_ptr<Store>> open_gcs_store(const StoreOptions& options, const StoreUrl& url,
                                              const Environment& environment,
                                              std::shared_ptr<auth::WebClient> web = nullptr);

}  // namespace headrace::gcs
