#include "store/hf/hf_links.h"

namespace headrace::hf {

void HfLinks::put(std::string_view key, std::string_view version, const HttpRedirect& link) {
  const TimePoint now = clock_.now();
  MutexLock lock(mutex_);
  if (links_.size() >= kMostLinks)
    std::erase_if(links_, [now](const auto& entry) { return entry.second.good_until <= now; });
  // All are in use: the hub is asked again for some.
  if (links_.size() >= kMostLinks) links_.clear();
  links_[std::string(key)] = {link, std::string(version), now + kLife};
}

std::unique_ptr<HttpRedirect> HfLinks::find(std::string_view key, std::string_view version) {
  const TimePoint now = clock_.now();
  MutexLock lock(mutex_);
  const auto it = links_.find(std::string(key));
  if (it == links_.end() || it->second.good_until <= now) return nullptr;
  if (!version.empty() && version != it->second.version) return nullptr;
  return std::make_unique<HttpRedirect>(it->second.redirect);
}

void HfLinks::drop(std::string_view key, const HttpRedirect& link) {
  MutexLock lock(mutex_);
  const auto it = links_.find(std::string(key));
  if (it != links_.end() && it->second.redirect.target == link.target) links_.erase(it);
}

}  // namespace headrace::hf
