#pragma once
/// \file
/// Where Google's credentials come from: application-default credentials, HMAC keys, and what the
/// machine says of itself. Pure functions over an Environment and a file reader; nothing here
/// touches the network.
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "auth/credentials.h"
#include "auth/google_signature.h"
#include "headrace/environment.h"
#include "headrace/status.h"

namespace headrace::auth {

/// Who asks for OAuth tokens, and how. Fields that a kind does not name are empty.
struct GoogleIdentity {
  enum class Kind : std::uint8_t {
    kServiceAccount,   ///< A key file.
    kAuthorizedUser,   ///< gcloud auth application-default login.
    kExternalAccount,  ///< Workload identity federation: another provider's token, traded at STS.
    kImpersonated,     ///< `source` acts as the service account of `impersonation_url`.
    kMachine,          ///< The metadata server of a machine, pod or function at Google.
  };
  Kind kind = Kind::kMachine;

  std::string client_email;           ///< kServiceAccount.
  std::string private_key_id;         ///< kServiceAccount.
  std::shared_ptr<const RsaKey> key;  ///< kServiceAccount.
  std::string token_uri;              ///< kServiceAccount, kAuthorizedUser, kExternalAccount.

  std::string client_id;      ///< kAuthorizedUser; kExternalAccount: optional.
  std::string client_secret;  ///< With client_id.
  std::string refresh_token;  ///< kAuthorizedUser.

  std::string audience;            ///< kExternalAccount.
  std::string subject_token_type;  ///< kExternalAccount.
  std::string workforce_project;   ///< kExternalAccount: optional.
  std::string subject_file;        ///< kExternalAccount: read anew for every token...
  std::string subject_url;         ///< ... or asked for one.
  std::vector<std::pair<std::string, std::string>> subject_headers;  ///< With subject_url.
  std::string subject_field;  ///< Of a JSON document; empty: the whole text is the token.

  std::string impersonation_url;                 ///< kImpersonated; kExternalAccount: optional.
  std::vector<std::string> delegates;            ///< kImpersonated.
  std::shared_ptr<const GoogleIdentity> source;  ///< kImpersonated.

  std::string metadata_host;  ///< kMachine: host[:port].
};

/// What the environment, the files and the machine say. At most one of hmac and identity is set.
struct GoogleSettings {
  std::optional<GoogleHmacKey> hmac;
  std::optional<GoogleIdentity> identity;
  std::string credentials_source;     ///< "service account x@y.iam.gserviceaccount.com (/path)".
  std::vector<std::string> searched;  ///< Places looked at, in order, with what was (not) there.
  std::string project;                ///< Billed for requester-pays; may be empty.
  std::string emulator_host;          ///< STORAGE_EMULATOR_HOST, with or without scheme.

  /// Several lines for people: what was found where. No secrets.
  std::string explain() const;
  /// The kDenied that open_store() returns when there are no credentials.
  Status missing_credentials() const;
};

/// Resolves all settings; the first that is found wins:
/// 1. GS_ACCESS_KEY_ID and GS_SECRET_ACCESS_KEY: an HMAC key;
/// 2. the file that GOOGLE_APPLICATION_CREDENTIALS names;
/// 3. application_default_credentials.json in CLOUDSDK_CONFIG, else in ~/.config/gcloud;
/// 4. the metadata server, where GCE_METADATA_HOST names one, or the firmware or K_SERVICE says
/// that
///    this runs at Google (not with NO_GCE_CHECK=true).
/// Project: GOOGLE_CLOUD_PROJECT, else the file's quota_project_id or project_id. No credentials at
/// all is no error here. Errors: kDenied (half of a key pair; a file that is named and not there),
/// kInvalidArgument (malformed file), kUnsupported (kinds of credentials that run programs).
Result<GoogleSettings> resolve_google_settings(const Environment& environment,
                                               const FileReader& read_file);

/// Reads one credentials file. Errors as above.
Result<GoogleIdentity> parse_google_identity(std::string_view json);

}  // namespace headrace::auth
