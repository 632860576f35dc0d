#pragma once
/// \file
/// Sessions of S3 Express One Zone: short-lived credentials for one directory bucket, got by
/// CreateSession with the account's own and renewed in the background before their five minutes
/// are over. Private to s3/.
///
/// Threads: as CredentialProvider says.
#include <functional>
#include <memory>
#include <string>

#include "auth/credentials.h"
#include "auth/web_client.h"
#include "store/s3/s3_config.h"
#include "store/s3/server_clock.h"

namespace headrace::s3 {

/// What CreateSession needs.
struct SessionSource {
  S3Config config;  ///< Its credentials are the account's own; not nullptr.
  std::shared_ptr<auth::WebClient> client;
  std::shared_ptr<ServerClock> clock;
  std::function<std::chrono::sys_seconds()> wall_now;
};

/// A provider of sessions. Asks for ReadWrite, and for ReadOnly where that is denied. Errors of
/// current(): also those of the account's own provider. Errors here: kInternal (OpenSSL).
Result<std::shared_ptr<auth::CredentialProvider>> express_sessions(SessionSource source);

/// Reads a CreateSessionResult. Errors: kCorrupt.
Result<auth::Credentials> parse_session(std::string_view body);

}  // namespace headrace::s3
