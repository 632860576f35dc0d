#pragma once
/// \file
/// For the model test: what a cache directory holds, from its rules alone (docs/design/0045) and
/// written as plainly as they are. It has no files, no processes and no time but a count.
///
/// Threads: one owner.
#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "tier/extent_file.h"

namespace headrace::tier {

class DiskCacheReference {
 public:
  struct Extent {
    bool was_hit = false;    ///< Read again since it came.
    std::int64_t since = 0;  ///< Of that, or when it came.
  };
  /// Batches of a reader that need an extent: those to come, soonest first.
  using Plan = std::map<ExtentName, std::vector<std::uint32_t>>;

  DiskCacheReference(std::uint64_t limit_bytes, std::map<ObjectId, std::string> urls)
      : limit_(limit_bytes), urls_(std::move(urls)) {}

  const std::map<ExtentName, Extent>& held() const { return held_; }
  std::uint64_t used_bytes() const {
    std::uint64_t sum = 0;
    for (const auto& [name, extent] : held_) sum += file_bytes(name);
    return sum;
  }

  void set_plan(std::size_t reader, std::optional<Plan> plan) { plans_[reader] = std::move(plan); }
  /// A reader is about to read the beginning of an extent.
  void note_read(std::size_t reader, const ExtentName& name) {
    if (!plans_[reader]) return;
    const auto found = plans_[reader]->find(name);
    if (found != plans_[reader]->end() && !found->second.empty())
      found->second.erase(found->second.begin());
  }
  /// Whether it is there; then it has been read again.
  bool read(const ExtentName& name) {
    const auto found = held_.find(name);
    if (found == held_.end()) return false;
    if (!found->second.was_hit) found->second = {.was_hit = true, .since = ++time_};
    return true;
  }
  void put(const ExtentName& name) {
    const std::uint64_t bytes = file_bytes(name);
    if (bytes > limit_) return;
    const std::uint64_t spare = std::max(bytes, limit_ / 64);
    if (used_bytes() + bytes > limit_) make_room(limit_ - spare, &name);
    if (used_bytes() + bytes > limit_) return;
    held_[name] = {.was_hit = ghosts_.erase(name) > 0, .since = ++time_};
  }
  void shrink(std::uint64_t bytes) { make_room(bytes, nullptr); }
  void drop(const ExtentName& name) { held_.erase(name); }
  void remove(const std::string& prefix) {
    std::erase_if(held_, [&](const auto& e) { return url(e.first).starts_with(prefix); });
  }
  void pin(const std::string& prefix) { pins_.insert(prefix); }
  bool unpin(const std::string& prefix) { return pins_.erase(prefix) > 0; }
  const std::set<std::string>& pins() const { return pins_; }

 private:
  const std::string& url(const ExtentName& name) const { return urls_.at(name.object); }
  bool is_pinned(const ExtentName& name) const {
    return std::any_of(pins_.begin(), pins_.end(),
                       [&](const std::string& prefix) { return url(name).starts_with(prefix); });
  }
  /// The soonest of all readers; none: nobody reads it again as far as is known.
  std::optional<std::uint32_t> need(const ExtentName& name) const {
    std::optional<std::uint32_t> soonest;
    for (const auto& plan : plans_) {
      if (!plan) continue;
      const auto found = plan->find(name);
      if (found == plan->end() || found->second.empty()) continue;
      soonest = std::min(soonest.value_or(UINT32_MAX), found->second.front());
    }
    return soonest;
  }

  void make_room(std::uint64_t target, const ExtentName* wanted) {
    for (const ExtentName& victim : order()) {
      if (used_bytes() <= target) return;
      if (is_pinned(victim)) continue;
      const auto victims = need(victim);
      if (victims && wanted != nullptr) {
        const auto own = is_pinned(*wanted) ? 0 : need(*wanted);
        if (!own || *victims <= *own) return;  // It stays, and what is wanted is left out.
      }
      if (!victims && !held_[victim].was_hit) ghosts_.insert(victim);
      held_.erase(victim);
    }
  }
  /// All that is held, in the order in which it goes.
  std::vector<ExtentName> order() const {
    std::vector<ExtentName> fresh, used, planned;
    std::uint64_t all_bytes = 0, fresh_bytes = 0;
    for (const auto& [name, extent] : held_) {
      if (!need(name)) all_bytes += file_bytes(name);
      if (!need(name) && !extent.was_hit) fresh_bytes += file_bytes(name);
      (need(name) ? planned : extent.was_hit ? used : fresh).push_back(name);
    }
    const auto later = [&](const ExtentName& a, const ExtentName& b) {
      return held_.at(a).since > held_.at(b).since;
    };
    std::sort(fresh.begin(), fresh.end(), later);
    std::sort(used.begin(), used.end(), later);
    std::vector<ExtentName> out;
    while (!fresh.empty() || !used.empty()) {
      const bool is_fresh = used.empty() || (!fresh.empty() && fresh_bytes * 10 > all_bytes);
      std::vector<ExtentName>& from = is_fresh ? fresh : used;
      out.push_back(from.back());
      from.pop_back();
      all_bytes -= file_bytes(out.back());
      if (is_fresh) fresh_bytes -= file_bytes(out.back());
    }
    std::sort(planned.begin(), planned.end(), [&](const ExtentName& a, const ExtentName& b) {
      return std::tuple(*need(b), a) < std::tuple(*need(a), b);
    });
    out.insert(out.end(), planned.begin(), planned.end());
    return out;
  }

  const std::uint64_t limit_;
  const std::map<ObjectId, std::string> urls_;
  std::map<ExtentName, Extent> held_;
  std::set<ExtentName> ghosts_;
  std::set<std::string> pins_;
  std::array<std::optional<Plan>, 2> plans_;  ///< By reader.
  std::int64_t time_ = 0;
};

}  // namespace headrace::tier
