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
#include <memory>
#include <optional>
#include <stop_token>
#include <thread>
#include <utility>
#include <vector>

#include "base/mutex.h"
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
  /// By block, in batches from the beginning of the epoch; kNever: not as far as is known.
  struct Needs {
    std::vector<std::uint32_t> now, later;
  };
  std::optional<Needs> find_needs(const Epoch& epoch, const std::stop_token& stop) const;

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
