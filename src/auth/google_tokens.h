#pragma once
/// \file
/// OAuth tokens of Google for each kind of GoogleIdentity. Pure but for the WebClient and the file
/// reader that come in.
///
/// Threads: fetch_google_token() from any thread; it blocks as long as the web client does.
#include <memory>
#include <stop_token>

#include "auth/google_credentials.h"
#include "auth/renewing.h"
#include "auth/web_client.h"
#include "headrace/clock.h"
#include "headrace/status.h"

namespace headrace::auth {

/// What a token is got with.
struct GoogleTokenTools {
  std::shared_ptr<WebClient> web;
  FileReader read_file;
  Clock* clock = nullptr;  ///< nullptr: system_clock().
};

/// A service account of Google's own token service: its own signature serves as the token.
bool is_self_signed(const GoogleIdentity& identity);

/// Gets one new token. A service account of Google's own token service signs it itself and asks
/// nobody. Errors: kDenied (refused; the message says by whom and what to do), kUnavailable and
/// kThrottled (may pass), kNotFound (a subject token's file), kCorrupt (an answer that is none).
Result<Token> fetch_google_token(const GoogleIdentity& identity, const GoogleTokenTools& tools,
                                 const std::stop_token& stop);

/// A provider that renews in the background.
std::shared_ptr<TokenProvider> google_tokens(GoogleIdentity identity, std::string what,
                                             GoogleTokenTools tools);

/// A signed JWT (RS256) that says that `identity`, a service account, is at `audience` with
/// `scope`, for an hour. Exposed for tests. Errors: kInternal.
Result<std::string> google_jwt(const GoogleIdentity& identity, const std::string& audience,
                               const std::string& scope, WallTime now);

}  // namespace headrace::auth
