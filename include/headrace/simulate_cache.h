#pragma once
/// \file
/// simulate_cache(): what a cache of some size would bring to a run, from the reads of the run.
///
/// Place: src/tier/. The reads come from trace_reads() (trace_reads.h). docs/design/0048.
///
/// Threads: functions; any.
#include <cstdint>
#include <vector>

namespace headrace {

/// The reads of a run, as its loaders hand them to the store.
struct ReadTrace {
  static constexpr std::uint32_t kNever = UINT32_MAX;

  struct Read {
    std::uint32_t object = 0;  ///< A version of an object, by number.
    bool is_cached = true;     ///< False: it names no version, and goes to the store.
    std::uint64_t offset_bytes = 0, length_bytes = 0;
    /// The batch of the run that needs it first; batches count on over the ends of epochs.
    std::uint64_t need = 0;
  };
  /// What a loader tells of its future (Store::foresee()).
  struct Foreseen {
    std::uint32_t object = 0;
    std::uint64_t offset_bytes = 0, length_bytes = 0;
    std::uint32_t first = kNever, second = kNever;  ///< As in ForeseenRead.
  };
  struct Plan {
    std::uint64_t since = 0;  ///< Reads of the rank before it.
    std::vector<Foreseen> reads;
  };
  struct Rank {
    std::vector<Read> reads;
    /// By batch of the run: reads before it was taken.
    std::vector<std::uint64_t> reads_before;
    std::vector<std::uint64_t> epoch_batches;  ///< By epoch.
    std::vector<Plan> plans;                   ///< By epoch.
  };
  std::vector<Rank> ranks;       ///< That share a cache, in step.
  std::uint64_t data_bytes = 0;  ///< Of all that a cache could keep.
  std::uint64_t file_bytes = 0;  ///< That it takes in one.
};

enum class CachePolicy : std::uint8_t {
  kNextUse,  ///< As the cache does it: what is needed last goes first, as far as loaders tell.
  kLru,      ///< What was used longest ago goes first.
};

/// What the run and its machine are like. Rates are shared by the ranks.
struct SimulatedMachine {
  double line_bytes_per_s = 1.25e9;  ///< From the store.
  double first_byte_s = 0.03;
  double disk_bytes_per_s = 3e9;
  double step_s = 0.1;  ///< Between two batches, while nothing is waited for.
};

struct SimulatedCache {
  std::uint64_t hit_bytes = 0;
  std::uint64_t fetched_bytes = 0;
  std::vector<std::uint64_t> epoch_fetched_bytes;  ///< By the epoch in which they were read.
  std::uint64_t evicted_bytes = 0;
  std::uint64_t left_out_bytes = 0;  ///< Fetched and not kept.
  double stall_s = 0;                ///< Waited for reads, the first batch's included.
  double run_s = 0;
};

/// Replays `trace` with a cache that is empty at first and whose files may take `limit_bytes` (0:
/// no cache).
SimulatedCache simulate_cache(const ReadTrace& trace, std::uint64_t limit_bytes, CachePolicy policy,
                              const SimulatedMachine& machine);

}  // namespace headrace
