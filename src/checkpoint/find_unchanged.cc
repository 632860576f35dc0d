// Threads take runs of blocks, in order; the first block of a piece that differs ends the piece for
// all of them. So what has changed all over costs a block, and what has not is read once.
#include <algorithm>
#include <atomic>
#include <stop_token>

#include "base/crc32c.h"
#include "checkpoint/crew.h"
#include "checkpoint/fingerprinter.h"
#include "headrace/checkpoint.h"

namespace headrace::checkpoint {
namespace {

constexpr std::uint64_t kRunBlocks = 64;

struct Run {
  std::size_t piece;
  std::uint64_t first_block;
};

class Comparison {
 public:
  Comparison(std::span<const std::byte* const> sources, std::span<const WrittenPiece> pieces,
             const FingerprintKey& key)
      : sources_(sources), pieces_(pieces), key_(key), has_changed_(pieces.size()) {
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      const std::uint64_t blocks = (pieces[i].length_bytes + kSumBlockBytes - 1) / kSumBlockBytes;
      has_changed_[i] = pieces[i].sums.size() != blocks || pieces[i].fingerprints.size() != blocks;
      for (std::uint64_t at = 0; at < blocks; at += kRunBlocks) runs_.push_back({i, at});
    }
  }

  Result<std::vector<bool>> run(std::uint32_t count, const Pause& pause) {
    count = static_cast<std::uint32_t>(std::clamp<std::size_t>(count, 1, runs_.size() + 1));
    HEADRACE_TRY(run_crew(
        count, [this](const std::stop_token& stop) { return compare_runs(stop); }, pause));
    std::vector<bool> unchanged;
    for (const std::atomic<bool>& changed : has_changed_) unchanged.push_back(!changed);
    return unchanged;
  }

 private:
  Status compare_runs(const std::stop_token& stop) {
    HEADRACE_TRY_ASSIGN(Fingerprinter fingerprinter, Fingerprinter::make(key_));
    while (!stop.stop_requested()) {
      // Relaxed: a number is all that is shared here.
      const std::size_t number = next_run_.fetch_add(1, std::memory_order_relaxed);
      if (number >= runs_.size()) break;
      const Run& run = runs_[number];
      std::atomic<bool>& changed = has_changed_[run.piece];
      const std::uint64_t blocks = pieces_[run.piece].sums.size();
      const std::uint64_t end = std::min(blocks, run.first_block + kRunBlocks);
      for (std::uint64_t i = run.first_block; i < end; ++i) {
        if (changed.load(std::memory_order_relaxed)) break;
        if (!is_same(run.piece, i, fingerprinter)) changed.store(true, std::memory_order_relaxed);
      }
    }
    return {};
  }

  bool is_same(std::size_t piece, std::uint64_t block, Fingerprinter& fingerprinter) const {
    const WrittenPiece& written = pieces_[piece];
    const std::uint64_t at = block * kSumBlockBytes;
    const std::span bytes(sources_[piece] + at,
                          std::min(kSumBlockBytes, written.length_bytes - at));
    // The sum first, which costs little; the fingerprint is what proves it.
    return crc32c(bytes) == written.sums[block] &&
           fingerprinter.print(bytes) == written.fingerprints[block];
  }

  const std::span<const std::byte* const> sources_;
  const std::span<const WrittenPiece> pieces_;
  const FingerprintKey key_;
  std::vector<Run> runs_;
  std::atomic<std::size_t> next_run_{0};
  std::vector<std::atomic<bool>> has_changed_;
};

}  // namespace

Result<std::vector<bool>> find_unchanged(std::span<const std::byte* const> sources,
                                         std::span<const WrittenPiece> pieces,
                                         const FingerprintKey& key, std::uint32_t threads,
                                         const Pause& pause) {
  return Comparison(sources, pieces, key).run(threads, pause);
}

}  // namespace headrace::checkpoint
