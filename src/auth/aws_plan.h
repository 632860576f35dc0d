#pragma once
/// \file
/// AwsPlan: which source of AWS credentials will be used, with all that it needs, as found in the
/// environment and the shared files. Pure data; aws_fetch.h gets credentials by it.
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "auth/profiles.h"
#include "auth/sigv4.h"

namespace headrace::auth {

enum class AwsSource : std::uint8_t {
  kNone,
  kStatic,       ///< Keys in variables or a profile.
  kWebIdentity,  ///< STS AssumeRoleWithWebIdentity with a token file.
  kAssumeRole,   ///< STS AssumeRole, signed with what `base` gives.
  kSso,          ///< IAM Identity Center, with the token that `aws sso login` left.
  kProcess,      ///< credential_process.
  kContainer,    ///< Endpoint of ECS or EKS.
  kInstance,     ///< EC2's instance metadata service.
};

/// "keys", "web identity", "role", "sso", "process", "container", "instance", "none".
std::string_view source_name(AwsSource source) noexcept;

struct AwsRole {
  std::string arn;
  std::string session_name;  ///< Empty: "headrace-<time>".
  std::string external_id;
  std::uint32_t duration_s = 0;  ///< 0: the service's default, one hour.
  std::string token_file;        ///< kWebIdentity.
};

struct AwsSso {
  std::string session;  ///< Name of the sso-session; empty for the legacy form.
  std::string start_url, region, account_id, role_name;
  std::string cache_file;  ///< Where `aws sso login` leaves the token.
  std::string login;       ///< "aws sso login --profile dev", for messages.
};

struct AwsContainer {
  std::string url;
  std::string token;       ///< Value of the Authorization field; may be empty.
  std::string token_file;  ///< Read anew for each request; wins over `token`.
};

struct AwsPlan {
  AwsSource kind = AwsSource::kNone;
  std::string source;  ///< "environment variables", "profile \"dev\" in /home/u/.aws/config".
  Credentials keys;    ///< kStatic.
  AwsRole role;        ///< kWebIdentity, kAssumeRole.
  std::shared_ptr<const AwsPlan> base;  ///< kAssumeRole.
  AwsSso sso;
  std::string command;  ///< kProcess.
  AwsContainer container;
  /// kInstance: false when it may well be that nobody is there: one short try, then kDenied.
  bool is_instance_certain = false;
};

/// Where the services behind credentials are.
struct AwsServices {
  std::string region;  ///< For STS. Empty: the global endpoint.
  std::string sts_endpoint, sso_endpoint, sso_oidc_endpoint;  ///< Empty: AWS's own.
  std::string metadata_endpoint = "http://169.254.169.254";   ///< Without trailing slash.
  bool is_metadata_disabled = false;
  bool is_metadata_v1_disabled = false;
};

/// Chooses the source as the AWS SDKs do (botocore's order): keys in variables; a role of the
/// profile; web identity of variables, then of the profile; SSO; keys in the credentials file;
/// credential_process; keys in the config file; container; instance. The first that is configured
/// is used, and when it fails so does the whole: what somebody has set is what he means.
/// Appends to `searched` each place with what was (not) there. Errors: kDenied, half of a key
/// pair; a role without source, in a circle, or with MFA; half an SSO configuration; a login
/// session; kInvalidArgument, a malformed number or URL.
Result<AwsPlan> plan_credentials(const Environment& environment, const Profiles& profiles,
                                 const FileReader& read_file, const AwsServices& services,
                                 std::vector<std::string>& searched);

}  // namespace headrace::auth
