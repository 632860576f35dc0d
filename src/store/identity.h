#pragma once
/// \file
/// What each driver fills in for describe_identity(). Each vendor has one such function,
/// `Status identify(const IdentityRequest&, Identity&)`, in its folder.
///
/// Threads: any; may block in `web`.
#include <memory>
#include <stop_token>

#include "auth/credentials.h"
#include "auth/web_client.h"
#include "headrace/whoami.h"
#include "store/url.h"

namespace headrace {

struct IdentityRequest {
  const StoreOptions& store;
  const StoreUrl& url;
  const Environment& environment;
  const IdentityOptions& options;
  std::shared_ptr<auth::WebClient> web;  ///< nullptr: describe what was found without fetching.
  auth::FileReader read_file;
};

/// url and vendor are set. Fills in settings, credential*, id, expires, searched, problem, and with
/// options.check checked_name. Missing or refused credentials go to `problem`, not to the Status.
namespace s3 {
Status identify(const IdentityRequest& request, Identity& out);
}
namespace gcs {
Status identify(const IdentityRequest& request, Identity& out);
}
namespace azure {
Status identify(const IdentityRequest& request, Identity& out);
}
namespace hf {
Status identify(const IdentityRequest& request, Identity& out);
}

}  // namespace headrace
