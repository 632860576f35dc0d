// A window is the unit of residency: its pieces (one a block) are read as one, and it is ready when
// all are. Its samples were permuted together, so any of them may be needed by the next batch: a
// window is kept until the lane has passed its end. A piece that nobody needs (consumed before a
// resume) is not read; `fetches` then has a null in its place, and `bytes` an empty entry, so that
// indices of pieces stay those of the order.
#include "feed/residency/residency.h"

#include <algorithm>

#include "feed/residency/kept_blocks.h"
#include "order/window_pieces.h"

namespace headrace::feed {

LaneWindow::LaneWindow(Window w)
    : window(std::move(w)), permutation(window.key, window.shuffled_count) {}

void LaneWindow::plan_fetches(const Dataset& dataset, const SlabSizes& sizes,
                              const StandIns& stand_ins, std::uint64_t consumed, bool wholes) {
  const std::vector<Piece> needed = pieces_from(window, permutation, consumed);
  std::vector<Extent> extents;
  for (Piece piece : needed) {
    fetches.emplace_back();
    if (piece.begin >= piece.end) continue;
    if (stand_ins.is_active() && stand_ins.is_block_bad(piece.block)) {
      const std::uint32_t block = stand_ins.find_or_same({piece.block, piece.begin}).block;
      piece = {block, 0, dataset.block(block).sample_count};
    }
    fetches.back() = std::make_shared<Fetch>();
    fetches.back()->piece = piece;
    extents.clear();
    const std::uint64_t size = dataset.append_extents(piece.block, piece.begin, piece.end, extents);
    fetches.back()->charged_bytes = sizes.charged_bytes(dataset, piece.block, size);
    charged_bytes += fetches.back()->charged_bytes;
    if (wholes) fetches.back()->piece = {piece.block, 0, dataset.block(piece.block).sample_count};
  }
}

void LaneWindow::replace_fetch(std::size_t index, const Dataset& dataset, std::uint32_t block,
                               TimePoint wanted) {
  fetches[index] = std::make_shared<Fetch>();
  fetches[index]->piece = {block, 0, dataset.block(block).sample_count};
  fetches[index]->timeline.wanted = wanted;
  begun_count = std::min(begun_count, index);
}

void LaneWindow::rewind() noexcept {
  const auto planned = std::find_if(fetches.begin(), fetches.end(), [](const auto& fetch) {
    return fetch && fetch->state == Fetch::State::kPlanned;
  });
  begun_count = std::min(begun_count, static_cast<std::size_t>(planned - fetches.begin()));
}

std::size_t LaneWindow::piece_of(const SamplePlace& place) const noexcept {
  const auto found = std::find_if(bytes.begin(), bytes.end(), [&](const BlockBytes& b) {
    return b.block == place.block && b.begin <= place.index && place.index < b.end;
  });
  return static_cast<std::size_t>(found - bytes.begin());
}

std::shared_ptr<Fetch> LaneWindow::find_whole(std::uint32_t block, const Dataset& dataset) const {
  const auto found = std::find_if(fetches.begin(), fetches.end(), [&](const auto& fetch) {
    return fetch && fetch->piece.block == block && has_whole_block(*fetch, dataset);
  });
  return found == fetches.end() ? nullptr : *found;
}

std::uint64_t LaneWindow::held_bytes() const noexcept {
  std::uint64_t held = 0;
  for (const auto& fetch : fetches) {
    if (!fetch) continue;
    // All owners' parts together are no less than what it holds.
    const std::uint64_t owners = fetch->sharer_count + 1;
    held += (fetch->held_bytes() + owners - 1) / owners;
  }
  return held;
}

bool LaneWindow::refresh() {
  if (is_ready) return true;
  for (const auto& fetch : fetches) {
    if (fetch && fetch->state != Fetch::State::kReady) return false;
  }
  bytes.resize(fetches.size());
  for (std::size_t i = 0; i < fetches.size(); ++i) {
    if (fetches[i]) bytes[i] = fetches[i]->bytes;
  }
  is_ready = true;
  return true;
}

std::size_t LaneWindow::failed() const noexcept {
  const auto found = std::find_if(fetches.begin(), fetches.end(), [](const auto& fetch) {
    return fetch && fetch->state == Fetch::State::kFailed;
  });
  return static_cast<std::size_t>(found - fetches.begin());
}

}  // namespace headrace::feed
