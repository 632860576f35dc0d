#pragma once
/// \file
/// HfListings: what is in folders of one commit, listed once and kept: a commit never changes. The
/// hub gives pages of its own order; here they are whole, and in that of the bytes.
///
/// Threads: any.
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/mutex.h"
#include "headrace/store.h"

namespace headrace::hf {

/// In byte order of the keys, which are whole paths in the repository; of a folder that was not
/// listed itself the key ends with "/".
using Listing = std::vector<ObjectInfo>;

class HfListings {
 public:
  /// `folder`: "" or "a/b/". `is_deep`: with all folders below it.
  std::shared_ptr<const Listing> find(std::string_view folder, bool is_deep) const
      HEADRACE_EXCLUDES(mutex_);
  /// Keeps it, as one of the last few.
  void put(std::string folder, bool is_deep, std::shared_ptr<const Listing> listing)
      HEADRACE_EXCLUDES(mutex_);
  /// The file, where a listing that is kept has it.
  std::optional<ObjectInfo> file(std::string_view path) const HEADRACE_EXCLUDES(mutex_);

 private:
  static constexpr std::size_t kMostListings = 4;
  struct Kept {
    std::string folder;
    bool is_deep;
    std::shared_ptr<const Listing> listing;
  };

  mutable Mutex mutex_;
  std::deque<Kept> kept_ HEADRACE_GUARDED_BY(mutex_);
};

/// One page of `listing` with the keys below `root` ("" or "a/b/") by the rules of Store::list().
/// \pre the listing holds all that the request may name. Errors: kInvalidArgument.
Result<ListPage> page_of(const Listing& listing, std::string_view root, const ListRequest& request);

}  // namespace headrace::hf
