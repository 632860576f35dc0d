#pragma once
/// \file
/// OrderSource: where a loader gets the order of each epoch from. The place where orders of other
/// loaders and mixtures plug in.
///
/// Place: made by whoever opens the loader (it knows the dataset), asked by feed/. Knows no stores.
///
/// Threads: immutable (a cache of its own needs its own lock); every function from any thread.
#include <cstdint>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/order.h"
#include "headrace/status.h"

namespace headrace {

/// The world that a source is made for; a state may come from another.
struct RunWorld {
  std::uint32_t world_size = 1;
  std::uint32_t ranks_per_node = 0;  ///< Divides world_size; 0: all ranks are on one node.
  std::uint32_t workers = 1;         ///< DataLoader workers a rank that the order is dealt out to.
  std::uint32_t batch_size = 1;      ///< Samples a rank.
};

/// What the loader asks for: the order from one place of an epoch on.
struct OrderQuery {
  std::uint64_t epoch = 0;
  std::uint64_t t = 0;             ///< Samples of the epoch that all ranks received before.
  std::uint64_t global_batch = 1;  ///< G, samples.
  std::uint32_t world_size = 1;    ///< R; divides G. Slots of rank r are G / R neighbours.
};

/// The answer. With a listed order that was made for `t`, `start` is 0: its list begins there.
struct OrderPlan {
  std::shared_ptr<const EpochOrder> order;  ///< nullptr: nothing of the epoch is left at `t`.
  std::uint64_t start = 0;                  ///< Place in `order` that corresponds to `t`.
};

/// Where a state of another loader stands.
struct ForeignPosition {
  std::uint64_t epoch = 0;
  std::uint64_t t = 0;
};

class OrderSource {
 public:
  virtual ~OrderSource() = default;

  /// Identity; part of the loader's state.
  virtual OrderSpec spec() const = 0;

  /// The order from `query.t` on. Called at the start of each epoch, after a resume, and for
  /// reports: the same query should be cheap the second time. Errors: kInvalidArgument (t beyond
  /// the end, world size that the order cannot serve), kCancelled (`stop`, while the source waits
  /// for something; computing goes on to its end), those of EpochOrder::create.
  virtual Result<OrderPlan> plan(const OrderQuery& query, const std::stop_token& stop) const = 0;

  /// A JSON object whose members go into the loader's state beside its own ("mixture" replaces its
  /// null); together under 1 KiB. The state's checksum covers them. `epoch`, `t`: the position that
  /// the state counts; the names of the members do not depend on it.
  virtual std::string state_extra(std::uint64_t epoch, std::uint64_t t) const {
    static_cast<void>(epoch);
    static_cast<void>(t);
    return "{}";
  }

  /// True for the versions of the order that restored() can go on with.
  virtual bool continues(std::uint32_t version) const { return version == spec().version; }

  /// The source that goes on from a state: `saved` is its spec, `state` the whole JSON. Id, seed
  /// and digest were compared before, and continues(saved.version). nullptr: this one. Errors:
  /// kInvalidArgument naming the field.
  virtual Result<std::shared_ptr<const OrderSource>> restored(const OrderSpec& saved,
                                                              std::string_view state) const {
    static_cast<void>(saved);
    static_cast<void>(state);
    return std::shared_ptr<const OrderSource>();
  }
  /// The source for an epoch that is begun anew, whatever restored() read of how it began before.
  /// nullptr: this one.
  virtual std::shared_ptr<const OrderSource> begun_anew() const { return nullptr; }

  /// The position in a state of the loader that this order is compatible with, and the source that
  /// goes on from there (nullptr: this one). nullopt: `state` is not of that loader. Errors:
  /// kInvalidArgument naming the field.
  struct Foreign {
    ForeignPosition position;
    std::shared_ptr<const OrderSource> source;
  };
  virtual Result<std::optional<Foreign>> read_foreign(std::string_view state) const {
    static_cast<void>(state);
    return std::optional<Foreign>();
  }
};

/// Source of the orders that EpochOrder::create() makes from `spec`. `block_samples`: of each
/// block. Errors: kInvalidArgument (an id that is none; lists those there are), those of
/// EpochOrder::create.
Result<std::shared_ptr<const OrderSource>> create_order_source(
    const OrderSpec& spec, std::vector<std::uint32_t> block_samples);

}  // namespace headrace
