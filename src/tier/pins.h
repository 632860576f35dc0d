#pragma once
/// \file
/// Pins: beginnings of URLs whose extents are never evicted.
///
/// Each is a file in the directory `pins`, called by the hash of what it holds, so that processes
/// need no lock to add and remove them, and whoever is killed leaves none half.
///
/// Threads: any.
#include <cstdint>
#include <ctime>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "headrace/status.h"
#include "tier/extent_name.h"

namespace headrace::tier {

class Pins {
 public:
  /// `folder`: the cache's directory of this version; `root`: the same, open, outlives this.
  Pins(std::string folder, int root) : folder_(std::move(folder) + "/pins"), root_(root) {}

  /// Errors: kInvalidArgument (empty, or longer than a URL may be), those of writing.
  Status add(const std::string& url_prefix);
  /// False: it was not there.
  Result<bool> remove(const std::string& url_prefix);
  /// In order. Errors: those of reading.
  Result<std::vector<std::string>> list();

  /// Learns what other processes have changed. Whether there are any.
  bool look();
  /// As of the last look().
  bool covers(std::string_view url);
  /// The same of an extent's object, whose URL is read from the extent's file the first time. False
  /// for one that cannot be read.
  bool covers(const ExtentName& extent);

 private:
  Status read() HEADRACE_REQUIRES(mutex_);
  bool matches(std::string_view url) const HEADRACE_REQUIRES(mutex_);

  const std::string folder_;
  const int root_;
  Mutex mutex_;
  std::vector<std::string> prefixes_ HEADRACE_GUARDED_BY(mutex_);
  /// Of the directory when it was read; and whether that was long enough ago for a later change to
  /// show.
  timespec changed_ HEADRACE_GUARDED_BY(mutex_){};
  bool is_sure_ HEADRACE_GUARDED_BY(mutex_) = false;
  std::map<ObjectId, bool> known_ HEADRACE_GUARDED_BY(mutex_);
};

}  // namespace headrace::tier
