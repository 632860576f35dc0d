#pragma once
/// \file
/// Renewing: a secret that expires, kept fresh in the background. Every provider that fetches
/// (AWS: STS, SSO, container, IMDS; Google; Azure) is one of these around a fetch function.
///
/// Threads: current() and invalidate() from any thread, never waiting; the fetch function runs on
/// the object's own thread, one at a time, and must end when its stop token asks.
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>

#include "headrace/clock.h"
#include "headrace/status.h"

namespace headrace::auth {

using WallTime = std::chrono::sys_seconds;

/// An OAuth bearer token (Google, Azure).
struct Token {
  std::string text;
  std::optional<WallTime> expires;  ///< Unset: does not.
};

/// Where the parts of a store get their bearer token.
class TokenProvider {
 public:
  virtual ~TokenProvider() = default;
  /// Never waits. Errors: kUnavailable (being fetched: ask again soon), kDenied (cannot be had; the
  /// message says why and where it was looked for).
  virtual Result<std::shared_ptr<const Token>> current(WallTime now) = 0;
  /// The store has refused `refused` as expired or revoked. True when a new one is under way.
  virtual bool invalidate(const Token& refused) = 0;
};

}  // namespace headrace::auth
