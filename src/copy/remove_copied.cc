#include <utility>

#include "base/check.h"
#include "headrace/copy.h"

namespace headrace {

std::vector<Status> remove_copied(Store& store, std::span<const std::string> keys,
                                  std::span<const std::string> etags, const CallOptions& call) {
  HEADRACE_CHECK(keys.size() == etags.size());
  std::vector<Status> results(keys.size());
  std::vector<std::string> same;
  std::vector<std::size_t> places;  // of each of them in `keys`
  for (std::size_t i = 0; i < keys.size(); ++i) {
    if (!etags[i].empty()) {
      auto found = store.head(keys[i], call);
      if (!found) {
        // One that is gone has no bytes to lose.
        if (found.error().code() != Code::kNotFound) results[i] = std::move(found).error();
        continue;
      }
      if (found->etag != etags[i]) {
        results[i] = Status(Code::kChanged,
                            store.object_url(keys[i]) + ": was written to since it was copied");
        continue;
      }
    }
    same.push_back(keys[i]);
    places.push_back(i);
  }
  if (same.empty()) return results;
  std::vector<Status> removed = store.remove_many(same, call);
  for (std::size_t i = 0; i < removed.size(); ++i) results[places[i]] = std::move(removed[i]);
  return results;
}

}  // namespace headrace
