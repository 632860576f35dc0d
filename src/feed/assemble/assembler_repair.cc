// What the assembler does about a batch that comes back because some of its values could not be
// decoded. A sample is read again until the same bytes have come twice, past caches and on another
// connection; only then is the data to blame, and another sample stands in for it (or the batch is
// an error). The other slots keep what was cut for them: their bytes stay pinned.
#include <algorithm>

#include "feed/assemble/assembler.h"

namespace headrace::feed {

std::string Assembler::name_of(const SamplePlace& place) const {
  std::vector<Extent> extents;
  dataset_.append_extents(place.block, place.index, place.index + 1, extents);
  const std::string key =
      extents.empty() ? std::string() : " (" + std::string(extents[0].key) + ")";
  return "sample " + std::to_string(id_of(place)) + " of " + dataset_.url() + key;
}

Status Assembler::name_bad_value(const CutBatch& cut, BadValue& bad) const {
  return std::move(bad.status)
      .annotate(name_of(cut.places[bad.slot]) + ", column '" +
                parts_.selection->schema[bad.column].name + "'");
}

Status Assembler::judge(CutBatch& cut, BadValue& bad) {
  Status status = name_bad_value(cut, bad);
  // What a decoder does not know may be a kind that it has no code for, or damage: a flipped bit in
  // a JPEG's header names another process.
  if (status.code() != Code::kCorrupt && status.code() != Code::kUnsupported) return status;
  const SamplePlace place = cut.places[bad.slot];
  switch (cut.looks[{place.block, place.index}].take(bad.digest)) {
    case SecondLook::Verdict::kReadAgain:
      return {};
    case SecondLook::Verdict::kNeverSame:
      return SecondLook::never_same(status);
    case SecondLook::Verdict::kData:
      break;
  }
  if (!parts_.stand_ins->replaces_found()) return status;
  Status bad_sample(Code::kCorrupt, std::string(status.message()));
  HEADRACE_TRY(parts_.stand_ins->take_bad_sample(place, std::move(bad_sample)));
  auto next = parts_.stand_ins->find(cut.planned[bad.slot]);
  return next ? Status() : std::move(next).error();
}

bool Assembler::is_own_repeat(std::uint32_t slot) {
  Work& head = this->head();
  return !head.is_real(slot) && head.slot_of(head.sample(slot)) < slot;
}

Status Assembler::judge_bad(CutBatch& cut) {
  std::vector<BadValue> bad = std::move(cut.bad);
  cut.bad.clear();
  const auto comes_first = [](const BadValue& a, const BadValue& b) {
    return std::pair(a.slot, a.column) < std::pair(b.slot, b.column);
  };
  std::sort(bad.begin(), bad.end(), comes_first);
  // One look a sample and round: of two columns the first.
  const auto is_same = [](const BadValue& a, const BadValue& b) { return a.slot == b.slot; };
  bad.erase(std::unique(bad.begin(), bad.end(), is_same), bad.end());
  for (BadValue& value : bad) {
    cut.redo.push_back(value.slot);
    if (!is_own_repeat(value.slot)) HEADRACE_TRY(judge(cut, value));
  }
  // With those of an earlier round that are still to be made.
  std::sort(cut.redo.begin(), cut.redo.end());
  cut.redo.erase(std::unique(cut.redo.begin(), cut.redo.end()), cut.redo.end());
  return {};
}

void Assembler::plan_repair(const CutBatch& cut) {
  std::vector<SparseSlot> again;
  std::vector<SparseSlot> others;
  for (std::uint32_t i = 0; i < cut.count; ++i) {
    const bool is_wanted =
        cut.is_stripped || std::binary_search(cut.redo.begin(), cut.redo.end(), i);
    if (!is_wanted || is_own_repeat(i)) continue;
    // It may be another than last time: what is bad was found elsewhere meanwhile.
    const SamplePlace place = parts_.stand_ins->find_or_same(cut.planned[i]);
    (cut.looks.contains({place.block, place.index}) ? again : others)
        .push_back({.slot = i, .block = 0, .index = 0, .planned = cut.planned[i]});
  }
  if (!again.empty()) read_ahead_.planner().add_second_looks(head(), std::move(again));
  if (!others.empty()) read_ahead_.planner().add_runs(head(), std::move(others));
}

}  // namespace headrace::feed
