#pragma once
/// \file
/// Forecast: tells the store of a loader what the loader is going to read, so that a cache below
/// can keep what is needed soonest.
///
/// Place: the loader says where each epoch begins; the rest of that epoch and the whole of the next
/// are told. Nothing happens for stores that want no foresight.
///
/// Threads: begin() from any; what it asks for is computed by a thread of its own.
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <thread>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "feed/block_reads.h"
#include "feed/finish/decoded_values.h"
#include "headrace/dataset.h"
#include "headrace/order_source.h"
#include "headrace/store.h"

namespace headrace::feed {

class Forecast {
 public:
  /// An epoch from one of its places on, as this rank sees it.
  struct Epoch {
    std::shared_ptr<const OrderSource> source;
    std::shared_ptr<const EpochOrder> order;
    BatchPlan plan;
    bool is_last = false;     ///< No epoch follows.
    std::uint64_t since = 0;  ///< begin() fills it in.
  };

  /// `store` outlives it. `values`: those that may be kept there.
  Forecast(std::shared_ptr<const Dataset> dataset, Store& store,
           std::shared_ptr<const DecodedValues> values)
      : dataset_(std::move(dataset)),
        store_(store),
        values_(std::move(values)),
        is_wanted_(store.wants_foresight()) {}
  /// Waits for what is being computed.
  ~Forecast();
  Forecast(const Forecast&) = delete;
  Forecast& operator=(const Forecast&) = delete;

  /// A run begins. Returns at once; replaces what was said before.
  void begin(Epoch epoch);

 private:
  void run(const std::stop_token& stop);
  void tell(const Epoch& epoch, const std::stop_token& stop);
  /// Of this epoch and the next, by block.
  std::vector<BlockRead> find_reads(const Epoch& epoch, const std::stop_token& stop) const;

  struct Told {
    std::vector<ForeseenRead> reads;
    std::deque<DecodedValues::Kept> values;  ///< What `reads` looks into.
  };
  void tell_parts(std::uint32_t block, std::span<const BlockPart> parts, Told& told) const;
  static void tell_needs(std::span<const Extent> extents, std::span<const std::uint64_t> needs,
                         Told& told);
  void tell_values(std::uint32_t block, std::span<const BlockPart> parts, std::uint64_t batch_count,
                   Told& told) const;

  const std::shared_ptr<const Dataset> dataset_;
  Store& store_;
  const std::shared_ptr<const DecodedValues> values_;
  const bool is_wanted_;
  Mutex mutex_;
  std::condition_variable changed_;
  std::optional<Epoch> next_ HEADRACE_GUARDED_BY(mutex_);
  bool is_ending_ HEADRACE_GUARDED_BY(mutex_) = false;
  std::stop_source stop_;
  std::thread thread_ HEADRACE_GUARDED_BY(mutex_);
};

}  // namespace headrace::feed
