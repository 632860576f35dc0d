#pragma once
/// \file
/// OAuth tokens for Azure Storage: one exchange with Entra ID or with a local service per token,
/// repeated in the background before it ends.
///
/// Threads: fetch_azure_token() blocks and belongs on the thread of a Renewing; providers as
/// TokenProvider says.
#include <memory>
#include <stop_token>

#include "auth/azure_settings.h"
#include "auth/renewing.h"
#include "auth/web_client.h"
#include "headrace/clock.h"

namespace headrace::auth {

/// One token by one exchange. Errors: kDenied (refused, or an answer without a token; the message
/// has the service's own words but no secret), kUnavailable (nobody there, 429, 5xx), kCancelled.
Result<Token> fetch_azure_token(const AzureIdentity& identity, WebClient& web,
                                const FileReader& read_file, const Clock& clock,
                                std::stop_token stop);

/// Keeps a token of `identity` fresh. `clock` outlives the provider; nullptr: system_clock().
std::shared_ptr<TokenProvider> azure_tokens(AzureIdentity identity, std::string source,
                                            std::shared_ptr<WebClient> web, FileReader read_file,
                                            const Clock* clock);

}  // namespace headrace::auth
