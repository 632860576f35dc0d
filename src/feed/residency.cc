#include "feed/residency.h"

#include <algorithm>

namespace headrace::feed {

LaneWindow::LaneWindow(Window w)
    : window(std::move(w)), permutation(window.key, window.sample_count) {}

void LaneWindow::plan_fetches(const Dataset& dataset, const SlabSizes& sizes,
                              std::uint64_t consumed) {
  std::vector<Piece> needed(window.pieces);
  if (consumed > window.first_position) {
    for (Piece& piece : needed) std::swap(piece.begin, piece.end);  // Empty, to be widened.
    for (std::uint64_t position = consumed; position < end_position(); ++position) {
      const WindowSample sample = sample_at(position);
      Piece& piece = needed[sample.piece];
      piece.begin = std::min(piece.begin, sample.sample_in_block);
      piece.end = std::max(piece.end, sample.sample_in_block + 1);
    }
  }
  std::vector<Extent> extents;
  for (const Piece& piece : needed) {
    first_sample.push_back(dataset.block(piece.block).first_sample);
    fetches.emplace_back();
    if (piece.begin >= piece.end) continue;
    fetches.back() = std::make_shared<Fetch>();
    fetches.back()->piece = piece;
    extents.clear();
    const std::uint64_t size = dataset.append_extents(piece.block, piece.begin, piece.end, extents);
    charged_bytes += sizes.charged_bytes(dataset, piece.block, size);
  }
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

const Fetch* LaneWindow::failed() const noexcept {
  for (const auto& fetch : fetches) {
    if (fetch && fetch->state == Fetch::State::kFailed) return fetch.get();
  }
  return nullptr;
}

}  // namespace headrace::feed
