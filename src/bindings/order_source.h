#pragma once
/// \file
/// The Python class _native.OrderSource: what a Loader takes instead of the name of an order.
#include <memory>

#include "bind.h"
#include "headrace/order_source.h"

namespace headrace {

struct PyOrderSource {
  std::shared_ptr<const OrderSource> source;
};

}  // namespace headrace
