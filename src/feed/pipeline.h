#pragma once
/// \file
/// Pipeline: turns a run into batches, one after the other, by its stages: ReadAhead (which plans
/// by its Planner), Assembler, Finisher. The channel bounds how many batches are finished and not
/// taken; memory bounds the rest.
///
/// Threads: the feed thread only.
#include <memory>
#include <optional>

#include "feed/assemble/assembler.h"
#include "feed/finish/finisher.h"
#include "feed/plan/work.h"
#include "feed/residency/read_ahead.h"

namespace headrace::feed {

class Pipeline {
 public:
  /// `parts.finisher` is set by the pipeline. `workers`, `hand_over_bytes`: as in
  /// Finisher::Parts.
  Pipeline(FeedParts parts, ThreadPool* workers, std::uint64_t hand_over_bytes);
  /// Waits for batches that workers are finishing.
  ~Pipeline();

  /// Drops everything under way and begins `run` (nullopt: idles).
  void begin(std::optional<Run> run, std::uint64_t generation);
  /// Starts what reads memory allows and delivers every batch that is complete. Returns until when
  /// to wait for events; max() when only an event can change anything.
  TimePoint step();

  /// Whether the last step() found that the head waits for memory that nobody but the holders of
  /// batches can give back.
  bool is_starved() const {
    return stages_ && stages_->read_ahead.is_starved() && stages_->read_ahead.is_still();
  }

  /// Largest window of `order`, as charged by the pool.
  static std::uint64_t largest_window_bytes(const Dataset& dataset, const EpochOrder& order,
                                            const SlabSizes& sizes);

 private:
  /// What belongs to one run.
  struct Stages {
    Stages(const FeedParts& parts, Run r, std::unique_ptr<Residency> residency,
           io::ReadAheadRoom& room, std::uint64_t dataset_bytes)
        : run(std::move(r)),
          following(run.following),
          read_ahead(parts, run, std::move(residency), room, dataset_bytes),
          assembler(parts, run, read_ahead) {}

    const Run run;
    std::shared_ptr<const Run> following;  ///< To be read ahead; null: no more.
    ReadAhead read_ahead;
    Assembler assembler;
    bool is_failed = false;
  };

  std::unique_ptr<Stages> make_stages(Run run);
  /// Ends the run; `next` becomes the one whose windows are being read, if it is that one.
  std::unique_ptr<Stages> take_following(const std::optional<Run>& next);
  /// Reads ahead of the next epoch, once all of this one is read or under way.
  void read_on();
  /// Ends batches of earlier runs that came back.
  void drop_bad();
  /// Takes the head as far as it goes; kDone: it is with the finisher.
  Result<Step> advance();
  /// The same for the batch that came back from the finisher.
  Result<Step> repair();
  void begin_repair(std::unique_ptr<CutBatch> cut);
  void end_repair(Status error);
  bool lacks_memory(const Result<Step>& step) const;
  /// Gives up what batches that came back keep alive, so that the first of them can be read anew:
  /// memory for one batch's single samples is always there. False when nothing is left to give up.
  bool strip_bad();
  bool strip(CutBatch& cut);
  /// Layout and memory for what was cut, and over to the finisher.
  Result<Step> finish(std::unique_ptr<CutBatch>& cut);
  /// What decoding takes, and where the values will lie. kAgain: the head is to be cut anew.
  Result<Step> lay_out_batch(CutBatch& cut);
  Result<Step> find_memory(CutBatch& cut);
  Result<Slab> acquire_batch(std::uint64_t size_bytes);
  /// Both slabs or none; kExhausted where there is none now.
  Status acquire(CutBatch& cut);
  void unpin(CutBatch& cut);
  void pass_head();
  /// Gives back what finished batches kept alive; false when none was finished. `must_wake`: see
  /// Finisher::take_finished().
  bool take_finished(bool must_wake);

  FeedParts parts_;
  Finisher finisher_;
  std::uint64_t generation_ = 0;
  io::ReadAheadRoom room_;
  std::unique_ptr<Stages> stages_;     ///< Null between runs.
  std::unique_ptr<Stages> following_;  ///< Of the next epoch: only its read_ahead is at work.
  std::unique_ptr<CutBatch> cut_;      ///< Of the head.
  /// Came back with values that could not be decoded; comes before the head.
  std::unique_ptr<CutBatch> repaired_;
};

}  // namespace headrace::feed
