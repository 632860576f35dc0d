#pragma once
/// \file
/// Mosaic's orders as a source. Pure: whoever makes it says where lists come from.
///
/// Threads: as OrderSource.
#include <functional>
#include <memory>
#include <stop_token>
#include <vector>

#include "headrace/mosaic_order.h"
#include "headrace/order_source.h"
#include "order/list_cache.h"

namespace headrace::order_detail {

/// The list of an epoch: made, or found where an earlier run or another rank left it.
using OpenMosaicList = std::function<Result<std::shared_ptr<const SampleList>>(
    const MosaicEpoch& epoch, const std::stop_token& stop)>;

/// headrace::create_mosaic_source() for a dataset of this shape.
Result<std::shared_ptr<const OrderSource>> create_mosaic_source(DatasetShape shape,
                                                                const MosaicSpec& spec,
                                                                std::vector<MosaicStream> streams,
                                                                const RunWorld& world,
                                                                OpenMosaicList open_list);

}  // namespace headrace::order_detail
