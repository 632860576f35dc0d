#include "feed/plan/sparse.h"

#include <algorithm>
#include <tuple>

namespace headrace::feed {
namespace {

/// A hole of a page costs less than another request, which takes at least a page of memory itself.
/// Larger holes would make the memory of a batch's single reads depend on luck.
constexpr std::uint64_t kMergeGapBytes = 4096;

void size_run(const Dataset& dataset, const SlabSizes& sizes, SparseRun& run,
              std::vector<Extent>& extents) {
  const Piece& piece = run.fetch->piece;
  extents.clear();
  const std::uint64_t size = dataset.append_extents(piece.block, piece.begin, piece.end, extents);
  run.charged_bytes = sizes.charged_bytes(dataset, piece.block, size);
}

/// How many samples that nobody wants may lie between two that are read together.
std::uint64_t widest_hole(const Dataset& dataset, std::uint32_t index) {
  const Block block = dataset.block(index);
  if (dataset.is_compressed(index)) return block.sample_count;
  if (are_samples_objects(dataset, index)) return 0;
  return kMergeGapBytes * block.sample_count / std::max<std::uint64_t>(block.stored_bytes, 1);
}

}  // namespace

bool comes_before(const SparseSlot& a, const SparseSlot& b) noexcept {
  return std::tie(a.block, a.index, a.slot) < std::tie(b.block, b.index, b.slot);
}

std::vector<SparseRun> plan_runs(const Dataset& dataset, std::vector<SparseSlot> slots,
                                 const SlabSizes& sizes) {
  std::sort(slots.begin(), slots.end(), comes_before);
  std::vector<SparseRun> runs;
  std::vector<Extent> extents;
  std::uint64_t gap_samples = 0;
  for (const SparseSlot& slot : slots) {
    const bool same_block = !runs.empty() && runs.back().fetch->piece.block == slot.block;
    if (!same_block) gap_samples = widest_hole(dataset, slot.block);
    if (!same_block || slot.index > runs.back().fetch->piece.end + gap_samples) {
      runs.emplace_back();
      runs.back().fetch = std::make_shared<Fetch>();
      runs.back().fetch->piece = {slot.block, slot.index, slot.index + 1};
    }
    runs.back().fetch->piece.end = slot.index + 1;
    runs.back().slots.push_back(slot);
  }
  for (SparseRun& run : runs) size_run(dataset, sizes, run, extents);
  return runs;
}

Status keep_samples(const Dataset& dataset, SlabPool& pool, SparseRun& run) {
  const std::size_t columns = dataset.columns().size();
  run.cells.assign(run.slots.size() * columns, {});
  std::size_t total = 0;
  for (std::size_t i = 0; i < run.slots.size(); ++i) {
    const std::span<ColumnBytes> row(run.cells.data() + i * columns, columns);
    HEADRACE_TRY(dataset.cut(run.fetch->bytes, run.slots[i].index, row));
    for (const ColumnBytes& cell : row) total += cell.present ? cell.size() : 0;
  }
  HEADRACE_TRY_ASSIGN(run.kept, pool.try_acquire(std::max<std::size_t>(total, 1)));
  std::byte* cursor = run.kept.bytes().data();
  for (ColumnBytes& cell : run.cells) {
    const std::span<std::byte> value(cursor, cell.present ? cell.size() : 0);
    if (cell.present) cell.write_to(value);
    cell = {.bytes = value, .present = cell.present};
    cursor += value.size();
  }
  run.fetch->release();
  run.is_kept = true;
  return {};
}

}  // namespace headrace::feed
