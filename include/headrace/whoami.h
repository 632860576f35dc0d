#pragma once
/// \file
/// Who a store takes us for: which credential would be used for a URL, where it was found, and all
/// places that were searched for it. For people: `headrace store whoami`.
///
/// No secrets: of ids only the first and last 4 characters. Threads: any.
#include <chrono>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "headrace/environment.h"
#include "headrace/status.h"
#include "headrace/store.h"

namespace headrace {

/// A setting and the place that it came from.
struct IdentitySetting {
  std::string name;    ///< "endpoint", "region", "addressing style".
  std::string value;   ///< "us-east-1". Empty: not set.
  std::string source;  ///< "AWS_REGION", "profile \"dev\" in /home/u/.aws/config", "default".
};

struct Identity {
  std::string url;     ///< Root of the store.
  std::string vendor;  ///< "s3", "gcs", "azure", "http", "file", "memory".
  std::vector<IdentitySetting> settings;
  /// "none" (none found), "anonymous", "not needed", or the kind of source: "keys", "role",
  /// "web identity", "sso", "process", "container", "instance", "service account", ...
  std::string credential = "none";
  std::string credential_source;  ///< "environment variables", "profile \"dev\" in ...".
  std::string
      id;  ///< Of the credential: masked access key id, account, client. Empty: not fetched.
  std::optional<std::chrono::sys_seconds> expires;
  /// Places looked at for credentials, in order, each with what was (not) there.
  std::vector<std::string> searched;
  std::string problem;  ///< Why there is no usable credential, and what to do. Empty: there is one.
  /// Only when checked: what the vendor calls us (an ARN), and what a listing of the root said.
  std::string checked_name;
  std::optional<bool> can_list;
  std::string check;  ///< "listed the root", or the store's answer.

  /// Several lines for people.
  std::string explain() const;
};

struct IdentityOptions {
  /// Also asks the services behind the credential (STS, SSO, metadata) for it.
  bool fetch = true;
  /// Also asks the store: one listing of at most one key, and the vendor's name for us.
  bool check = false;
  CallOptions call;
};

/// Describes what open_store() with the same arguments would use. Blocks for the network when
/// options.fetch or options.check. That there is no credential is no error but Identity::problem.
/// Errors: kInvalidArgument (URL, options), kUnsupported (scheme), kCancelled.
Result<Identity> describe_identity(const StoreOptions& store, const Environment& environment,
                                   const IdentityOptions& options = {});

}  // namespace headrace
