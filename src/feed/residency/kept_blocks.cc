// A kept block is the Fetch that read it, as it is: batches that are still being finished have
// pinned it, and unpin that object. So nothing is moved out of it, and it is given up by the
// fetcher, which waits for pins.
#include "feed/residency/kept_blocks.h"

#include <iterator>
#include <utility>

namespace headrace::feed {

bool has_whole_block(const Fetch& fetch, const Dataset& dataset) {
  const bool is_there = fetch.state == Fetch::State::kReady || fetch.is_under_way();
  return is_there && !fetch.is_abandoned && fetch.piece.begin == 0 &&
         fetch.piece.end == dataset.block(fetch.piece.block).sample_count;
}

bool KeptBlocks::keep(const std::shared_ptr<Fetch>& fetch, std::uint64_t room_bytes) {
  if (!has_whole_block(*fetch, dataset_) || fetch->is_under_way() || fetch->sharer_count > 0)
    return false;
  const std::uint64_t bytes = fetch->held_bytes();
  if (bytes_ + bytes > room_bytes || by_block_.contains(fetch->piece.block)) return false;
  const auto entry = entries_.emplace_hint(entries_.end(), count_++, Entry{fetch, bytes});
  by_block_.emplace(fetch->piece.block, entry);
  bytes_ += bytes;
  return true;
}

std::shared_ptr<Fetch> KeptBlocks::take_out(Entries::iterator entry) {
  std::shared_ptr<Fetch> fetch = std::move(entry->second.fetch);
  bytes_ -= entry->second.bytes;
  by_block_.erase(fetch->piece.block);
  entries_.erase(entry);
  return fetch;
}

std::shared_ptr<Fetch> KeptBlocks::take(std::uint32_t block) {
  const auto found = by_block_.find(block);
  return found == by_block_.end() ? nullptr : take_out(found->second);
}

void KeptBlocks::limit(std::uint64_t most_bytes) {
  while (bytes_ > most_bytes && give_up_one()) continue;
}

bool KeptBlocks::give_up_one() {
  if (entries_.empty()) return false;
  fetcher_.abandon(*take_out(std::prev(entries_.end())));
  return true;
}

}  // namespace headrace::feed
