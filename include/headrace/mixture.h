#pragma once
/// \file
/// Mixtures: several datasets in one epoch, by proportions that may change while a run goes on.
/// docs/order.md, section "Mixtures", has the definition; docs/design/0024 the reasons.
///
/// Words: a *source* is one of the datasets. The *schedule* says which source each sample of the
/// run comes from; it depends on nothing but weights. The samples of a source come in the order of
/// EpochOrder, one epoch of the source after the other. Slots of a global batch are divided into P
/// *groups*; group g owns the lanes of every source whose number is g modulo P, so that ranks read
/// different data. The *run's sample* tau counts over all mixture epochs: epoch * samples + t.
///
/// Threads: immutable; any thread.
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/order.h"
#include "headrace/order_source.h"
#include "headrace/status.h"

namespace headrace {

/// Bounded so that a state stays below 1 KiB.
inline constexpr std::uint32_t kMaxMixtureSources = 32;
/// Groups at most: more would only make lanes of small sources shorter.
inline constexpr std::uint32_t kMaxMixtureGroups = 16;
/// Weights are whole numbers of this sum.
inline constexpr std::uint32_t kMixtureWeightSum = 65'536;

enum class MixtureBatching : std::uint8_t {
  kProportional,  ///< Sources alternate as evenly as their weights allow.
  kStratified,    ///< Each batch has the same whole number of samples of each source.
  kPerSource,     ///< Each batch is of one source.
};
/// "proportional", "stratified", "per_source".
std::string_view mixture_batching_name(MixtureBatching batching) noexcept;
Result<MixtureBatching> parse_mixture_batching(std::string_view name);

/// Weights from a sample of the run on. One number a source; sources beyond the end have 0.
struct MixtureChange {
  std::uint64_t first_sample = 0;      ///< tau; a multiple of MixtureSpec::batch.
  std::vector<std::uint32_t> weights;  ///< Sum: kMixtureWeightSum.
};

/// One source as its order sees it.
struct MixturePart {
  OrderSpec order;  ///< "headrace" or "sequential"; lane_count is a multiple of the groups.
  std::vector<std::uint32_t> block_samples;
  std::string name = {};  ///< For messages; empty: its number.
};

/// Version of the order of new runs. In version 1 each lane of a source goes through epochs by
/// itself; from 2 on all lanes do together, so that each sample comes equally often (to within 1).
inline constexpr std::uint32_t kMixtureVersion = 2;

/// Identity of a mixture's order, with the block tables.
struct MixtureSpec {
  std::uint32_t version = kMixtureVersion;
  std::uint64_t seed = 0;
  std::uint32_t groups = 1;  ///< P: a power of two that divides `batch`, 1 .. kMaxMixtureGroups.
  std::uint64_t batch = 1;   ///< Global batch size of the first run.
  MixtureBatching batching = MixtureBatching::kProportional;
  std::uint64_t epoch_samples = 1;  ///< A multiple of `batch`, or the sum of epoch_shares.
  /// Samples of each source in each epoch, exactly; then `changes` is empty and batching is
  /// kProportional. Empty: by weights.
  std::vector<std::uint64_t> epoch_shares;
  std::vector<MixtureChange> changes;  ///< Ascending; the first at 0.
  std::vector<MixturePart> parts;      ///< 1 .. kMaxMixtureSources.
};

/// Whole weights from proportions, by largest remainder. Errors: kInvalidArgument (empty, negative,
/// not finite, all zero, or one that is above zero but below 1 / kMixtureWeightSum of the sum).
/// Messages have `names` for the sources, one a proportion; empty: their numbers.
Result<std::vector<std::uint32_t>> mixture_weights(std::span<const double> proportions,
                                                   std::span<const std::string> names = {});

/// Seed of the order of source `index` in a mixture.
std::uint64_t mixture_part_seed(std::uint64_t seed, std::uint32_t index) noexcept;

/// Which source each sample of a run comes from. Immutable; any thread.
class MixtureSchedule {
 public:
  /// `spec.parts` is not looked at but for its size. Errors: kInvalidArgument (names the field).
  static Result<std::shared_ptr<const MixtureSchedule>> create(const MixtureSpec& spec);
  virtual ~MixtureSchedule() = default;

  /// Samples of `source` among the first `tau` of the run. O(P log period).
  virtual std::uint64_t count(std::uint32_t source, std::uint64_t tau) const = 0;
  /// Samples of each source in one batch of `batch` samples from `tau` on.
  virtual std::vector<std::uint64_t> counts(std::uint64_t tau, std::uint64_t batch) const = 0;
};

/// An epoch order over several sources. Beyond EpochOrder it knows the sources of lanes and blocks.
class MixtureOrder : public LaneOrder {
 public:
  /// Blocks are those of the parts one after the other; lanes likewise. Positions in lanes count on
  /// from epoch to epoch. Errors: kInvalidArgument (names the field), those of EpochOrder::create.
  static Result<std::shared_ptr<const MixtureOrder>> create(
      std::shared_ptr<const MixtureSchedule> schedule, std::shared_ptr<const MixtureSpec> spec,
      std::uint64_t epoch);
  /// Source and the epoch of the source that a lane is in at `position`.
  struct SourceEpoch {
    std::uint32_t source = 0;
    std::uint64_t epoch = 0;
  };
  virtual SourceEpoch source_at(std::uint32_t lane, std::uint64_t position) const = 0;
};

/// Groups for a first run: the largest power of two up to kMaxMixtureGroups that divides the global
/// batch and is at most the sample count of the smallest source.
std::uint32_t choose_mixture_groups(std::uint64_t global_batch,
                                    std::span<const std::uint64_t> source_samples) noexcept;

/// Fingerprints of a source's dataset.
struct MixturePrints {
  std::string content;   ///< Dataset::fingerprint(); what states say.
  std::string versions;  ///< Dataset::version_fingerprint(); what older states say.
};

/// A source as a mixture is planned from it.
struct MixtureInput {
  std::string name;
  MixturePrints prints;
  std::vector<std::uint32_t> block_samples;
  std::uint32_t window_blocks = 2;
  std::uint64_t window_bytes = 1;  ///< Memory that its largest window takes.
};

/// Proportions from a global batch on.
struct MixtureProportions {
  std::uint64_t first_batch = 0;
  std::vector<double> proportions;
};

/// What is asked of a mixture at its first start.
struct MixtureRequest {
  std::uint64_t seed = 0;
  bool is_shuffled = true;  ///< False: each source in its own sequence, in one lane.
  MixtureBatching batching = MixtureBatching::kProportional;
  std::vector<MixtureProportions> schedule;  ///< The first from batch 0 on; or epoch_shares.
  std::vector<std::uint64_t> epoch_shares;   ///< Samples of each source an epoch, exactly.
  /// Samples of an epoch, rounded down to whole batches; 0: as many as the sources have. Not with
  /// epoch_shares.
  std::uint64_t epoch_samples = 0;
  std::uint64_t global_batch = 1;
  std::uint64_t memory_bytes = 1;  ///< Memory of one rank for windows.
  std::uint32_t groups = 0;        ///< 0: chosen.
};

/// The spec of a first run: groups and lanes chosen. Errors: kInvalidArgument (names the source or
/// field).
Result<MixtureSpec> plan_mixture(const MixtureRequest& request,
                                 std::span<const MixtureInput> inputs);

/// Orders of a mixture for a loader. Its part of the state is the member "mixture", at most
/// kMixtureStateBytes: docs/semantics.md.
class MixtureSource : public OrderSource {
 public:
  /// `names` and `prints` of the parts. Errors: kInvalidArgument (spec; more changes than the state
  /// holds).
  static Result<std::shared_ptr<const MixtureSource>> create(MixtureSpec spec,
                                                             std::vector<std::string> names,
                                                             std::vector<MixturePrints> prints);

  virtual const MixtureSpec& mixture() const noexcept = 0;
  virtual const std::vector<std::string>& names() const noexcept = 0;
  virtual const MixtureSchedule& schedule() const noexcept = 0;
  /// The run's sample at which a change asked for at `tau` takes effect: the next batch boundary.
  std::uint64_t boundary(std::uint64_t tau) const noexcept {
    return (tau + mixture().batch - 1) / mixture().batch * mixture().batch;
  }
  /// The same with other proportions from boundary(tau) on; later changes are dropped. Errors:
  /// kInvalidArgument (weights; exact shares; the state has no room for another change).
  virtual Result<std::shared_ptr<const MixtureSource>> changed(
      std::uint64_t tau, std::span<const double> proportions) const = 0;
};

/// Bytes of a state's member "mixture" at most: with the rest a state stays below 1 KiB.
inline constexpr std::size_t kMixtureStateBytes = 560;

}  // namespace headrace
