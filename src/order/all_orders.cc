// The one list of the orders that are chosen by name.
#include <algorithm>
#include <iterator>
#include <string>

#include "order/order_driver.h"

namespace headrace::order_detail {
namespace {

constexpr OrderDriver kOrders[] = {
    {.id = "headrace", .has_lanes = true, .make = &create_spec_source},
    {.id = "sequential", .has_lanes = false, .make = &create_spec_source},
};

}  // namespace

Result<const OrderDriver*> find_order(std::string_view id) {
  const auto* const found = std::find_if(std::begin(kOrders), std::end(kOrders),
                                         [&](const auto& o) { return o.id == id; });
  if (found != std::end(kOrders)) return found;
  std::string known;
  for (const OrderDriver& order : kOrders) known.append(known.empty() ? "" : ", ").append(order.id);
  return Status(Code::kInvalidArgument,
                "order '" + std::string(id) + "' is unknown; there are " + known);
}

}  // namespace headrace::order_detail
