#pragma once
/// \file
/// HfRevision: the commit that a branch or tag names, asked for once: all that a store lists and
/// reads is of this commit, whatever is pushed meanwhile.
///
/// Threads: any; the hub is asked on a thread of its own.
#include <memory>
#include <optional>
#include <string>

#include "auth/renewing.h"
#include "auth/web_client.h"
#include "base/mutex.h"
#include "store/hf/hf_config.h"

namespace headrace::hf {

struct Commit {
  std::string sha;
  std::optional<auth::WallTime> expires;  ///< Unset: never. For Renewing.

  bool operator==(const Commit&) const = default;
};

class HfRevision {
 public:
  /// `config` outlives it.
  HfRevision(const HfConfig& config, std::shared_ptr<auth::WebClient> web);

  /// Never waits; the first call asks the hub. Errors: kUnavailable (being asked: call again soon),
  /// those of hub_error().
  Result<std::shared_ptr<const Commit>> current(auth::WallTime now) HEADRACE_EXCLUDES(mutex_);

 private:
  Result<Commit> fetch(const std::stop_token& stop) HEADRACE_EXCLUDES(mutex_);
  Result<auth::WebAnswer> ask(const std::stop_token& stop);

  const HfConfig& config_;
  const std::shared_ptr<auth::WebClient> web_;
  const std::string what_;
  Mutex mutex_;
  Status failure_ HEADRACE_GUARDED_BY(mutex_);  // of the last fetch
  auth::Renewing<Commit> renewing_;             // last: its thread uses the others
};

}  // namespace headrace::hf
