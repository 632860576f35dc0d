#pragma once
/// \file
/// OrderDriver: what the engine knows of an order that users choose by name. all_orders.cc is the
/// one table of them. Orders of other loaders and mixtures need more than a spec; whoever opens the
/// loader makes their sources.
///
/// Threads: constants and functions of any thread.
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "headrace/order_source.h"

namespace headrace::order_detail {

struct OrderDriver {
  std::string_view id;  ///< As in states, and in `order=`.
  /// Whether a first run chooses lanes and windows for it (choose_lanes.cc); else it has one lane
  /// and windows of one block.
  bool has_lanes = false;
  /// Errors: kInvalidArgument, kUnsupported (a version that this build does not know).
  Result<std::shared_ptr<const OrderSource>> (*make)(
      const OrderSpec& spec, std::vector<std::uint32_t> block_samples) = nullptr;
};

/// Errors: kInvalidArgument (lists the names there are).
Result<const OrderDriver*> find_order(std::string_view id);

/// A source of the orders that EpochOrder::create() makes.
Result<std::shared_ptr<const OrderSource>> create_spec_source(
    const OrderSpec& spec, std::vector<std::uint32_t> block_samples);

}  // namespace headrace::order_detail
