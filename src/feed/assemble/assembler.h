#pragma once
/// \file
/// Assembler: finds where every value of the head lies, once its reads have come, and what stands
/// in for samples that are bad.
///
/// Threads: the feed thread only.
#include <map>
#include <utility>
#include <vector>

#include "feed/assemble/cut_batch.h"
#include "feed/plan/stand_ins.h"
#include "feed/plan/work.h"
#include "feed/residency/read_ahead.h"

namespace headrace::feed {

class Assembler {
 public:
  /// All must outlive it.
  Assembler(const FeedParts& parts, const Run& run, ReadAhead& read_ahead);

  /// Cuts the head into `cut`, which must be the same one until kDone. Errors: kCorrupt (a bad
  /// sample), those of the store, kExhausted.
  Result<Step> assemble(CutBatch& cut);
  /// Keeps alive what the values of the head lie in. \pre assemble() gave kDone.
  void pin(CutBatch& cut);
  /// A value does not fit its column: of which sample, and is it the data's fault? False when that
  /// was asked already.
  bool check_again();
  // A batch that came back from the finisher, which is the head now (assembler_repair.cc).
  /// Which of its bad samples are read once more, and which are replaced. Errors: kCorrupt (a bad
  /// sample), kUnavailable (one never comes twice the same).
  Status judge_bad(CutBatch& cut);
  /// Plans the reads for them; of all samples where the batch has lost its bytes.
  void plan_repair(const CutBatch& cut);
  /// Of the real samples of the head. \pre assemble() gave kDone.
  std::span<const LanePosition> places() noexcept;
  /// The head is delivered.
  void pass() noexcept;

 private:
  /// Where a slot's sample lies.
  struct Source {
    const BlockBytes* bytes = nullptr;
    std::uint32_t index = 0;
    Fetch* fetch = nullptr;  ///< That brought the bytes.
    bool is_single = false;  ///< A read of single samples.
  };
  /// kElsewhere: what stands in for the sample lies in other bytes. kReadAgain: what came makes no
  /// sense, which may be the wire's fault.
  enum class Cut : std::uint8_t { kDone, kElsewhere, kReadAgain };

  Work& head() noexcept { return read_ahead_.head(); }
  void begin_head(CutBatch& cut);
  Result<Step> await_runs();
  Result<Step> begin_runs();
  /// Keeps what ready run `index` of a compressed block has for the batch; kDone: go on with the
  /// next.
  Result<Step> keep_run(std::size_t index);
  Result<Step> resolve(CutBatch& cut);
  /// Finds the sources of the slots; those whose stand-ins are not in memory go to `apart`.
  Result<Step> resolve_slots(CutBatch& cut, std::vector<std::uint32_t>& apart);
  /// The source of a slot in a window that is ready; false: its stand-in is not there.
  bool find_source(CutBatch& cut, std::uint32_t slot, const LaneWindow& window,
                   const LanePosition& place);
  Result<Step> await_window(LaneWindow& window);
  Result<Step> cut_all(CutBatch& cut);
  /// Takes what the head's runs brought.
  void take_runs(CutBatch& cut);
  /// Cuts the sample of a slot, or what stands in for it.
  Result<Cut> cut_slot(CutBatch& cut, std::uint32_t slot);
  std::int64_t id_of(const SamplePlace& place) const {
    return static_cast<std::int64_t>(run_.order->block_first_sample(place.block) + place.index);
  }

  // Bad samples (assembler_stand_ins.cc).
  /// Cuts what stands in for `planned` (itself while it is good) as far as the source's bytes hold
  /// it. `place` becomes what was cut, or has to be read.
  Result<Cut> cut_stand_in(const Source& source, const SamplePlace& planned, SamplePlace& place,
                           std::span<ColumnBytes> row);
  /// Whether each sample is compared with its columns as it is cut; else all are once they are laid
  /// out.
  bool checks_sizes() const { return is_size_wrong_ || parts_.stand_ins->is_active(); }
  /// check_sizes(), with the sample's name.
  Status check_sizes_of(const SamplePlace& place, std::span<const ColumnBytes> row) const;
  /// Finds all bad samples of a block whose bytes are known to be the object's, so that it need not
  /// be read again for each of them.
  Status take_bad_neighbours(const BlockBytes& bytes, std::span<ColumnBytes> row);
  /// Whether a sample that could not be cut is to be read again before its data is blamed. Errors:
  /// kUnavailable (it never comes twice the same).
  Result<bool> wants_second_look(const SamplePlace& place, const Status& status,
                                 const Source& source);
  /// Reads the samples of slots again, each by itself, on other connections.
  void read_again(const CutBatch& cut, const std::vector<std::uint32_t>& slots);
  /// Reads the stand-ins of slots (ascending) singly.
  Status read_apart(const CutBatch& cut, const std::vector<std::uint32_t>& slots);
  /// Takes slots out of the runs that have come, and gives up those that serve no other.
  void release_slots(const std::vector<std::uint32_t>& slots);
  /// The fetch of a run failed: reads stand-ins if its block is bad.
  Status replace_run(std::size_t index);
  /// Moves the slots of a run whose stand-ins lie elsewhere, or whose bytes make no sense, to runs
  /// of their own.
  Status settle_run(std::size_t index);
  /// The same for a piece of a window, for which the block of its stand-in is read.
  Status replace_piece(LaneWindow& window, std::size_t index);
  std::vector<ReplacedSample> replaced(const CutBatch& cut) const;

  // Values that could not be decoded (assembler_repair.cc).
  Status judge(CutBatch& cut, BadValue& bad);
  /// The slot gets what another of this batch has.
  bool is_own_repeat(std::uint32_t slot);
  /// "sample 3 of s3://bucket/data (shard.mds)".
  std::string name_of(const SamplePlace& place) const;
  Status name_bad_value(const CutBatch& cut, BadValue& bad) const;

  const FeedParts& parts_;
  const Dataset& dataset_;
  Fetcher& fetcher_;
  const Run& run_;
  ReadAhead& read_ahead_;

  // Of the head, by slot.
  std::vector<Source> sources_;
  std::vector<LanePosition> places_;
  /// By block and index: samples that could not be cut from what came, read again.
  std::map<std::pair<std::uint32_t, std::uint32_t>, SecondLook> looks_;
  bool is_size_wrong_ = false;  ///< A value did not fit its column.
};

}  // namespace headrace::feed
