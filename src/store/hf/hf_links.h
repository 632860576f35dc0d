#pragma once
/// \file
/// HfLinks: the signed links to the bytes of files that the hub gave out lately. A link serves any
/// number of ranges: so of many reads of a file only the first asks the hub, which counts requests.
///
/// Threads: any.
#include <chrono>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>

#include "base/mutex.h"
#include "headrace/clock.h"
#include "store/http_protocol.h"

namespace headrace::hf {

class HfLinks {
 public:
  /// The hub's links are good for an hour; those that end earlier are found out by being refused.
  static constexpr std::chrono::minutes kLife{30};
  static constexpr std::size_t kMostLinks = 4096;

  explicit HfLinks(const Clock& clock) : clock_(clock) {}

  /// `version`: of the file that it leads to; empty: not told.
  void put(std::string_view key, std::string_view version, const HttpRedirect& link)
      HEADRACE_EXCLUDES(mutex_);
  /// nullptr: none, or it may lead to another version than this one (empty: any).
  std::unique_ptr<HttpRedirect> find(std::string_view key, std::string_view version)
      HEADRACE_EXCLUDES(mutex_);
  /// Forgets `link`, if it is still the one of `key`.
  void drop(std::string_view key, const HttpRedirect& link) HEADRACE_EXCLUDES(mutex_);

 private:
  struct Link {
    HttpRedirect redirect;
    std::string version;
    TimePoint good_until;
  };

  const Clock& clock_;
  Mutex mutex_;
  std::unordered_map<std::string, Link> links_ HEADRACE_GUARDED_BY(mutex_);
};

}  // namespace headrace::hf
