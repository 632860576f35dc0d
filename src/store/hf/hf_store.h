#pragma once
/// \file
/// HfStore: a dataset or model of the Hugging Face hub at one commit, read-only, as a Store over a
/// TransferEngine that speaks HfProtocol.
///
/// Threads: as class Store says. All handles of one store share protocol, engine and listings.
#include <memory>

#include "auth/web_client.h"
#include "headrace/store.h"
#include "store/url.h"

namespace headrace::hf {

/// Opens hf://datasets/ORG/NAME[@REV][/FOLDER]; contacts nobody: the revision is asked for by the
/// first request. Errors: those of make_hf_config() and TransferEngine::create().
Result<std::unique_ptr<Store>> open_hf_store(const StoreOptions& options, const StoreUrl& url,
                                             const Environment& environment,
                                             std::shared_ptr<auth::WebClient> web);

}  // namespace headrace::hf
