#pragma once
/// \file
/// Where credentials, region and endpoint come from: environment variables, then the shared AWS
/// files, in the order of the AWS SDKs. Pure functions over an Environment and a file reader;
/// nothing here touches the process or the network.
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

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

/// Returns the text of a file, or nullopt when it does not exist or cannot be read.
using FileReader = std::function<std::optional<std::string>(const std::string& path)>;

/// A setting and the place that it came from, for messages. `text` is empty when nothing was found.
struct FoundSetting {
  std::string text;
  std::string source;
};

/// What the environment and the files say.
struct AwsSettings {
  std::optional<Credentials> credentials;
  std::string credentials_source;  ///< "environment variables", "profile \"dev\" in
                                   ///< /home/u/.aws/credentials".
  FoundSetting region;
  FoundSetting endpoint;          ///< http(s)://host[:port].
  FoundSetting addressing_style;  ///< "path", "virtual" or "auto".
  std::vector<std::string>
      searched;  ///< Places looked at for credentials, in order, each with what was (not) there.

  /// Several lines for people: what was found where. No secrets; of the access key only the first
  /// and last 4 characters.
  std::string explain() const;
  /// The kDenied that open_store() returns when there are no credentials.
  Status missing_credentials() const;
};

/// Resolves all settings. Variables: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN,
/// AWS_PROFILE, AWS_DEFAULT_PROFILE, AWS_CONFIG_FILE, AWS_SHARED_CREDENTIALS_FILE, AWS_REGION,
/// AWS_DEFAULT_REGION, AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL, AWS_IGNORE_CONFIGURED_ENDPOINT_URLS,
/// HOME. No credentials at all is no error here. Errors: kDenied (half of a key pair; a named
/// profile that does not exist), kInvalidArgument (malformed file).
Result<AwsSettings> resolve_aws_settings(const Environment& environment,
                                         const FileReader& read_file);

/// Reads regular files of up to 1 MiB.
FileReader local_file_reader();

}  // namespace headrace::auth
