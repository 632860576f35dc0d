// The result may depend on nothing but lengths and options: every rank, and every run that goes on
// later, makes its own plan and must come to the same. Hence the stable sort, and ties of room go
// to the sequence that was begun first.
//
// best_fit() puts each piece, the longest first, where the least room is left over. It cuts only
// documents longer than a sequence. The set is ordered by room, so the best place is one look-up.
#include "shard/views/pack_plan.h"

#include <algorithm>
#include <set>
#include <utility>

namespace headrace::detail {
namespace {

using Sequences = std::vector<std::vector<PackPiece>>;

Sequences concatenate(std::span<const std::uint32_t> lengths, const PackTokensOptions& options) {
  Sequences sequences;
  std::uint32_t room = 0;
  for (std::uint32_t d = 0; d < lengths.size(); ++d) {
    std::uint32_t begin = 0;
    while (begin < lengths[d]) {
      if (room == 0) {
        sequences.emplace_back();
        room = options.length;
      }
      const std::uint32_t length = std::min(lengths[d] - begin, room);
      // A document that is whole is never left out, however short.
      const bool is_kept = length >= options.min_piece || length == lengths[d];
      if (is_kept) sequences.back().push_back({d, begin, length});
      const bool is_end = begin + length == lengths[d];
      // A short beginning leaves its room empty, a short end gives it to the next document.
      if (is_kept || !is_end) room -= length;
      begin += length;
    }
  }
  const bool is_partial = room > 0 && !sequences.empty();
  if (is_partial && (options.drop_partial || sequences.back().empty())) sequences.pop_back();
  // Short pieces may have left nothing in a sequence.
  std::erase_if(sequences, [](const auto& sequence) { return sequence.empty(); });
  return sequences;
}

Sequences best_fit(std::span<const std::uint32_t> lengths, const PackTokensOptions& options) {
  std::vector<PackPiece> pieces;
  for (std::uint32_t d = 0; d < lengths.size(); ++d) {
    for (std::uint32_t begin = 0; begin < lengths[d];) {
      const std::uint32_t length = std::min(lengths[d] - begin, options.length);
      if (length >= options.min_piece || length == lengths[d]) pieces.push_back({d, begin, length});
      begin += length;
    }
  }
  std::stable_sort(pieces.begin(), pieces.end(),
                   [](const PackPiece& a, const PackPiece& b) { return a.length > b.length; });
  Sequences sequences;
  std::set<std::pair<std::uint32_t, std::uint32_t>> rooms;  // (tokens left, sequence)
  for (const PackPiece& piece : pieces) {
    const auto best = rooms.lower_bound({piece.length, 0});
    auto index = static_cast<std::uint32_t>(sequences.size());
    std::uint32_t room = options.length;
    if (best != rooms.end()) {
      room = best->first;
      index = best->second;
      rooms.erase(best);
    } else {
      sequences.emplace_back();
    }
    sequences[index].push_back(piece);
    if (room > piece.length) rooms.emplace(room - piece.length, index);
  }
  return sequences;
}

void count(std::span<const std::uint32_t> lengths, const Sequences& sequences,
           const PackTokensOptions& options, PackReport& report) {
  std::vector<std::uint32_t> pieces(lengths.size(), 0);
  std::uint64_t all = 0;
  std::uint64_t packed = 0;
  for (const std::uint32_t length : lengths) all += length;
  for (const auto& sequence : sequences) {
    for (const PackPiece& piece : sequence) {
      packed += piece.length;
      ++pieces[piece.document];
    }
  }
  report.documents += lengths.size();
  report.document_tokens += all;
  report.sequences += sequences.size();
  report.padding_tokens += sequences.size() * options.length - packed;
  report.dropped_tokens += all - packed;
  report.cut_documents += static_cast<std::uint64_t>(
      std::count_if(pieces.begin(), pieces.end(), [](std::uint32_t n) { return n > 1; }));
}

}  // namespace

PackPlan PackPlan::make(std::span<const std::uint32_t> lengths, const PackTokensOptions& options,
                        PackReport* report) {
  Sequences sequences = options.method == PackMethod::kConcatenate ? concatenate(lengths, options)
                                                                   : best_fit(lengths, options);
  if (report != nullptr) count(lengths, sequences, options, *report);
  PackPlan plan;
  plan.finish(std::move(sequences));
  return plan;
}

void PackPlan::finish(std::vector<std::vector<PackPiece>> sequences) {
  for (const auto& sequence : sequences) {
    Range range{sequence.front().document, sequence.front().document + 1};
    for (const PackPiece& piece : sequence) {
      range.begin = std::min(range.begin, piece.document);
      range.end = std::max(range.end, piece.document + 1);
      pieces_.push_back(piece);
    }
    first_piece_.push_back(static_cast<std::uint32_t>(pieces_.size()));
    ranges_.push_back(range);
    all_ = ranges_.size() == 1
               ? range
               : Range{std::min(all_.begin, range.begin), std::max(all_.end, range.end)};
  }
}

PackPlan::Range PackPlan::documents(std::uint32_t begin, std::uint32_t end) const noexcept {
  if (begin == 0 && end == ranges_.size()) return all_;
  Range range = ranges_[begin];
  for (std::uint32_t s = begin + 1; s < end; ++s) {
    range.begin = std::min(range.begin, ranges_[s].begin);
    range.end = std::max(range.end, ranges_[s].end);
  }
  return range;
}

}  // namespace headrace::detail
