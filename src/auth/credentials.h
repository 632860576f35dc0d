#pragma once
/// \file
/// Where AWS credentials, region and endpoint come from, in the order of the AWS SDKs. Resolving is
/// pure, over an Environment and a file reader; fetching happens in the background of a provider.
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "auth/aws_plan.h"
#include "auth/renewing.h"
#include "auth/sigv4.h"
#include "headrace/environment.h"
#include "headrace/status.h"

namespace headrace::auth {

/// Gives the credentials to sign with. Thread-safe. Providers that renew (SSO, IMDS, web identity)
/// do so in the background: current() never waits for a network.
class CredentialProvider {
 public:
  virtual ~CredentialProvider() = default;
  /// Never waits. Errors: kDenied when they have expired at `now` and could not be renewed;
  /// kUnavailable while the first ones are being fetched (ask again soon).
  virtual Result<std::shared_ptr<const Credentials>> current(WallTime now) = 0;
  /// The store has refused `refused` as expired. True when new ones are under way.
  virtual bool invalidate(const Credentials& /*refused*/) { return false; }
};

/// A provider of credentials that do not change.
std::shared_ptr<CredentialProvider> static_credentials(Credentials credentials);

/// What the environment and the files say.
struct AwsSettings {
  /// Where credentials will come from; kind kNone: nowhere, see missing_credentials().
  AwsPlan plan;
  std::optional<Credentials> credentials;  ///< Of a kStatic plan.
  std::string credentials_source;          ///< "environment variables", "profile \"dev\" in
                                           ///< /home/u/.aws/credentials".
  AwsServices services;
  FoundSetting region;
  FoundSetting endpoint;          ///< http(s)://host[:port].
  FoundSetting addressing_style;  ///< "path", "virtual" or "auto".
  FoundSetting profile;           ///< The chosen one.
  /// Requests carry sums, and answers are asked for theirs, only where S3 demands it: for stores
  /// that refuse the fields.
  bool sums_requests_when_required = false;
  bool asks_for_sums_when_required = false;
  /// Places looked at for credentials, in order, each with what was (not) there.
  std::vector<std::string> searched;

  /// Several lines for people: what was found where. No secrets; of the access key only the first
  /// and last 4 characters.
  std::string explain() const;
  /// The kDenied that open_store() returns when there are no credentials.
  Status missing_credentials() const;
};

/// Resolves all settings; contacts nobody. Variables: all of aws_plan.h's rules, and AWS_PROFILE,
/// AWS_DEFAULT_PROFILE, AWS_CONFIG_FILE, AWS_SHARED_CREDENTIALS_FILE, AWS_REGION,
/// AWS_DEFAULT_REGION, AWS_ENDPOINT_URL, AWS_ENDPOINT_URL_{S3,STS,SSO,SSO_OIDC},
/// AWS_IGNORE_CONFIGURED_ENDPOINT_URLS, AWS_EC2_METADATA_DISABLED,
/// AWS_EC2_METADATA_SERVICE_ENDPOINT[_MODE], AWS_EC2_METADATA_V1_DISABLED,
/// AWS_REQUEST_CHECKSUM_CALCULATION, AWS_RESPONSE_CHECKSUM_VALIDATION, HOME. No credentials at
/// all is no error here. Errors: those of plan_credentials() and Profiles::load().
Result<AwsSettings> resolve_aws_settings(const Environment& environment,
                                         const FileReader& read_file);

struct AwsWorld;
/// The provider for settings.plan; it contacts nobody before the first current(). nullptr when
/// there are no credentials. `world` must have a clock, and for a plan that is not kStatic all but
/// write_file.
std::shared_ptr<CredentialProvider> make_aws_provider(const AwsSettings& settings, AwsWorld world);

/// A provider around any fetch function: S3 Express sessions, tests.
std::shared_ptr<CredentialProvider> renewing_credentials(
    RenewalOptions options, std::function<Result<Credentials>(std::stop_token)> fetch);

/// "AKIA...MPLE"; all stars when the id is short; nothing of none.
std::string masked_id(const std::string& id);

/// Reads regular files of up to 1 MiB.
FileReader local_file_reader();

}  // namespace headrace::auth
