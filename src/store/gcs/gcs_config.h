#pragma once
/// \file
/// Where a bucket of Google Cloud Storage is and who asks: from URL, options and settings to host
/// and path. Pure.
#include <memory>
#include <optional>
#include <string>

#include "auth/google_credentials.h"
#include "auth/google_signature.h"
#include "auth/renewing.h"
#include "headrace/status.h"
#include "headrace/store.h"
#include "store/http_protocol.h"
#include "store/url.h"

namespace headrace::gcs {

/// Everything that requests to one root have in common.
struct GcsConfig {
  std::string bucket;
  std::string prefix;    ///< Of every key: "" or "a/b/". Raw.
  std::string root_url;  ///< "gs://bucket/a/b".
  HttpEndpoint endpoint;
  std::string host_field;    ///< For the Host field.
  std::string base_path;     ///< Escaped; of the endpoint, before "/bucket/key". Mostly "".
  bool is_emulator = false;  ///< STORAGE_EMULATOR_HOST: spoken to in JSON, see emulator_protocol.h.
  // At most one of the two; neither: anonymous.
  std::shared_ptr<auth::TokenProvider> tokens;
  std::optional<auth::GoogleHmacKey> hmac;
  std::optional<auth::UrlSigner> url_signer;  ///< Unset: these credentials cannot sign URLs.
  std::string project;                        ///< Whose buckets are listed; may be empty.
  std::string user_project;                   ///< Pays for the requests; empty: the bucket's owner.
  std::string credentials_source;
  ObjectSettings settings;      ///< Of all writes.
  bool sends_checksum = true;   ///< With what is written.
  bool checks_checksum = true;  ///< Of what is read.
};

/// Options win over `settings`. Tokens are added by the caller. Errors: kInvalidArgument (bucket
/// name, endpoint, requester_pays without a project).
Result<GcsConfig> make_gcs_config(const StoreOptions& options, const StoreUrl& url,
                                  const auth::GoogleSettings& settings);

/// A bearer token is worth its account to whoever reads it on the way. Errors: kDenied (plain HTTP,
/// and not to this machine).
Status check_token_path(const GcsConfig& config);

/// An object's key in the bucket: 1 to 1,024 bytes, no CR, LF or NUL, not "." or "..".
Status check_gcs_key(std::string_view key);

}  // namespace headrace::gcs
