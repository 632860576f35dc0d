#include "store/hf/hf_listings.h"

#include <algorithm>
#include <optional>

#include "store/list_pager.h"

namespace headrace::hf {
namespace {

Listing::const_iterator first_at(const Listing& listing, std::string_view key) {
  return std::lower_bound(
      listing.begin(), listing.end(), key,
      [](const ObjectInfo& info, std::string_view wanted) { return info.key < wanted; });
}

}  // namespace

std::shared_ptr<const Listing> HfListings::find(std::string_view folder, bool is_deep) const {
  MutexLock lock(mutex_);
  for (const Kept& kept : kept_) {
    const bool covers =
        kept.is_deep ? folder.starts_with(kept.folder) : !is_deep && folder == kept.folder;
    if (covers) return kept.listing;
  }
  return nullptr;
}

void HfListings::put(std::string folder, bool is_deep, std::shared_ptr<const Listing> listing) {
  MutexLock lock(mutex_);
  if (kept_.size() == kMostListings) kept_.pop_front();
  kept_.push_back({std::move(folder), is_deep, std::move(listing)});
}

std::optional<ObjectInfo> HfListings::file(std::string_view path) const {
  MutexLock lock(mutex_);
  for (const Kept& kept : kept_) {
    const auto it = first_at(*kept.listing, path);
    if (it != kept.listing->end() && it->key == path) return *it;
  }
  return std::nullopt;
}

Result<ListPage> page_of(const Listing& listing, std::string_view root,
                         const ListRequest& request) {
  ListPager pager(request);
  HEADRACE_TRY(pager.check());
  const std::string_view begin = request.continuation.empty()
                                     ? std::string_view(request.prefix)
                                     : std::string_view(request.continuation).substr(1);
  const std::string prefix = std::string(root) + request.prefix;
  for (auto it = first_at(listing, std::string(root) + std::string(begin)); it != listing.end();
       ++it) {
    if (!it->key.starts_with(prefix)) {
      if (it->key > prefix) break;
      continue;
    }
    ObjectInfo info = *it;
    info.key.erase(0, root.size());
    if (!info.key.empty() && !pager.add(std::move(info))) break;
  }
  return pager.take();
}

}  // namespace headrace::hf
