#include "tier/eviction_order.h"

#include <algorithm>
#include <tuple>
#include <utility>

namespace headrace::tier {
namespace {

/// Of the files: what has not been read again may take so much before it goes first.
constexpr std::uint64_t kNewShare = 10;

std::vector<Candidate> in_order_of_use(std::vector<Candidate> all) {
  // What was never read again makes room first, as long as it is more than a tenth: one pass over
  // a large dataset does not push out what is in use. Then what was read again longest ago.
  std::sort(all.begin(), all.end(), [](const Candidate& a, const Candidate& b) {
    return a.was_hit != b.was_hit ? !a.was_hit : a.since_ns < b.since_ns;
  });
  const auto used =
      std::find_if(all.begin(), all.end(), [](const Candidate& c) { return c.was_hit; });
  std::uint64_t held = 0;
  std::uint64_t new_bytes = 0;
  for (const Candidate& c : all) {
    held += c.file_bytes;
    if (!c.was_hit) new_bytes += c.file_bytes;
  }
  std::vector<Candidate> out;
  out.reserve(all.size());
  auto next_new = all.begin();
  for (auto next_used = used; next_new != used || next_used != all.end();) {
    const bool takes_new =
        next_new != used && (next_used == all.end() || new_bytes * kNewShare > held);
    out.push_back(takes_new ? *next_new++ : *next_used++);
    held -= out.back().file_bytes;
    if (takes_new) new_bytes -= out.back().file_bytes;
  }
  return out;
}

}  // namespace

std::vector<Candidate> eviction_order(std::vector<Candidate> all) {
  const auto planned =
      std::stable_partition(all.begin(), all.end(), [](const Candidate& c) { return !c.need; });
  std::vector<Candidate> needed(planned, all.end());
  all.erase(planned, all.end());
  std::vector<Candidate> out = in_order_of_use(std::move(all));
  std::sort(needed.begin(), needed.end(), [](const Candidate& a, const Candidate& b) {
    return std::tuple(*b.need, a.name) < std::tuple(*a.need, b.name);
  });
  out.insert(out.end(), needed.begin(), needed.end());
  return out;
}

}  // namespace headrace::tier
