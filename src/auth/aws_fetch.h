#pragma once
/// \file
/// Getting AWS credentials by a plan: STS, IAM Identity Center, credential_process, container and
/// instance metadata.
///
/// Threads: fetch_credentials() blocks; it runs on the thread of a Renewing, or of whoami.
#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <string_view>

#include "auth/aws_plan.h"
#include "auth/credentials.h"
#include "auth/process_runner.h"
#include "auth/web_client.h"
#include "headrace/clock.h"

namespace headrace::auth {

/// Replaces a file's content by one that only its owner can read.
using FileWriter = std::function<Status(const std::string& path, std::string_view text)>;

/// What fetching needs of the world.
struct AwsWorld {
  std::shared_ptr<WebClient> web;
  std::shared_ptr<ProcessRunner> processes;
  FileReader read_file;
  FileWriter write_file;  ///< For the SSO token cache; may be empty: not kept.
  Clock* clock = nullptr;
};

/// The world of this process: local files and programs, the machine's clock unless `clock` is
/// given.
AwsWorld local_aws_world(std::shared_ptr<WebClient> web, const Environment& environment,
                         Clock* clock = nullptr);

/// One round. Errors: kUnavailable, kThrottled (may pass), kDenied (with what to do), kCancelled.
Result<Credentials> fetch_credentials(const AwsPlan& plan, const AwsServices& services,
                                      const AwsWorld& world, std::stop_token stop);

/// What STS calls the owner of `credentials`: "arn:aws:iam::123456789012:user/alice". Errors: those
/// of fetch_credentials().
Result<std::string> caller_identity(const Credentials& credentials, const AwsServices& services,
                                    const AwsWorld& world, std::stop_token stop);

/// "2026-11-21T14:29:23Z", with any fraction; also "+00:00"-like offsets and "UTC".
std::optional<WallTime> parse_timestamp(std::string_view text);

}  // namespace headrace::auth
