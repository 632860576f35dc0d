// A want has a need of its own only to be worth more or less than others in the cache. What a
// loader needs soon it has told the cache itself (ForeseenRead), so the fill says nothing of it
// (kNever); what nobody needs in the known epochs gives way to all that somebody does.
#include "headrace/node_fill.h"

#include <algorithm>

namespace headrace {

Result<FillOptions> plan_node_fill(const Loader& loader, const NodeFill& node,
                                   const std::stop_token& stop) {
  // As far as the loader tells the cache itself.
  constexpr std::uint64_t kForeseen = 2;
  const std::uint64_t epochs =
      node.epochs_left == 0 ? kForeseen : std::min(kForeseen, node.epochs_left);
  HEADRACE_TRY_ASSIGN(const auto own, loader.block_needs(epochs, node.rank, 1, stop));
  HEADRACE_TRY_ASSIGN(const auto all,
                      loader.block_needs(epochs, node.first_rank, node.rank_count, stop));
  FillOptions options;
  options.memory_bytes = node.memory_bytes;
  options.wants = order_wants(own);
  for (FillOptions::Want& want : options.wants) want.need = ForeseenRead::kNever;
  if (node.epochs_left == 0 || node.epochs_left > kForeseen) {
    for (std::uint32_t block = 0; block < all.size(); ++block) {
      if (all[block] == kNever && block % node.rank_count == node.rank - node.first_rank)
        options.wants.push_back({.block = block, .need = ForeseenRead::kNever - 1});
    }
  }
  options.may_read = [&loader] { return loader.is_ahead(); };
  return options;
}

}  // namespace headrace
