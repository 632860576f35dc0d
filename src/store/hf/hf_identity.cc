#include "store/hf/hf_config.h"
#include "store/identity.h"

namespace headrace::hf {

Status identify(const IdentityRequest& request, Identity& out) {
  HEADRACE_TRY_ASSIGN(
      const HfConfig config,
      make_hf_config(request.store, request.url, request.environment, request.read_file));
  out.settings = {{"endpoint", config.endpoint_url, config.endpoint_source},
                  {"revision", config.revision, ""}};
  out.searched = config.searched;
  if (config.token.empty()) {
    out.credential = "anonymous";
    return {};
  }
  out.credential = "token";
  out.credential_source = config.token_source;
  out.id = auth::masked_id(config.token);
  return {};
}

}  // namespace headrace::hf
