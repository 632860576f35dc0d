#pragma once
/// \file
/// LitData's order as a source. Pure.
///
/// Threads: as OrderSource.
#include <memory>

#include "headrace/litdata_order.h"
#include "headrace/order_source.h"
#include "order/list_cache.h"

namespace headrace::order_detail {

/// headrace::create_litdata_source() for a dataset of this shape.
Result<std::shared_ptr<const OrderSource>> create_litdata_source(DatasetShape shape,
                                                                 const LitDataSpec& spec,
                                                                 const RunWorld& world);

}  // namespace headrace::order_detail
