#pragma once
/// \file
/// Order sources of other loaders: the sequences of mosaicml-streaming and litdata over any dataset
/// whose shards are their shards or chunks.
///
/// Place: src/feed, which knows datasets and keeps tables in files; the sources themselves are pure
/// (src/order). docs/order.md defines the orders.
///
/// Threads: as OrderSource.
#include <memory>
#include <vector>

#include "headrace/dataset.h"
#include "headrace/litdata_order.h"
#include "headrace/mosaic_order.h"
#include "headrace/order_source.h"
#include "headrace/order_table.h"
#include "headrace/status.h"

namespace headrace {

/// Order "mosaic:ALGO". `streams`: empty: one stream of all shards of `dataset`; else their shards
/// together are those of the dataset, in its sequence. States carry Mosaic's fields
/// ("sample_in_epoch", "num_canonical_nodes", "shuffle_seed", "initial_physical_nodes") and are
/// taken from Mosaic as well. Errors: kInvalidArgument (what MosaicEpoch::create refuses, streams
/// that are not the dataset's shards, ranks_per_node that does not divide world_size).
Result<std::shared_ptr<const OrderSource>> create_mosaic_source(const Dataset& dataset,
                                                                const MosaicSpec& spec,
                                                                std::vector<MosaicStream> streams,
                                                                const RunWorld& world,
                                                                const OrderTableOptions& tables);

/// Order "litdata": its chunks are the shards of `dataset`. State dicts of LitData's
/// StreamingDataset and StreamingDataLoader are taken. Errors: kInvalidArgument.
Result<std::shared_ptr<const OrderSource>> create_litdata_source(const Dataset& dataset,
                                                                 const LitDataSpec& spec,
                                                                 const RunWorld& world);

}  // namespace headrace
