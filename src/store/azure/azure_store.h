#pragma once
/// \file
/// AzureStore: the Store contract over a TransferEngine that speaks AzureProtocol.
///
/// Differences of Azure that show: a parallel upload exists only as uncommitted blocks, which Azure
/// discards after a week or when another upload to the same key completes; abort_upload() contacts
/// nobody and is remembered by this process; list_uploads() is kUnsupported; presigned URLs take an
/// account key, and those for kPut want the header "x-ms-blob-type: BlockBlob".
///
/// Threads: as class Store says. All handles of one store share protocol and engine.
#include <memory>

#include "auth/web_client.h"
#include "headrace/environment.h"
#include "headrace/store.h"
#include "store/azure/azure_config.h"
#include "store/url.h"

namespace headrace::azure {

/// Where a container is and who asks. Tokens come through `web`. Errors: as open_azure_store().
Result<AzureConfig> resolve_azure_config(const StoreOptions& options, const StoreUrl& url,
                                         const Environment& environment,
                                         std::shared_ptr<auth::WebClient> web);

/// Opens what is_azure_url() says is one; contacts nobody. Tokens come through `web`. Errors: those
/// of open_store().
Result<std::unique_ptr<Store>> open_azure_store(const StoreOptions& options, const StoreUrl& url,
                                                const Environment& environment,
                                                std::shared_ptr<auth::WebClient> web);

}  // namespace headrace::azure
