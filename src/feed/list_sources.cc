// The sources of other loaders' orders, made for a dataset: they ask only for its shape, and
// Mosaic's lists lie in tables that the ranks of a node share.
#include "headrace/list_sources.h"

#include "order/litdata/litdata_source.h"
#include "order/mosaic/mosaic_source.h"

namespace headrace {
namespace {

order_detail::DatasetShape shape_of(const Dataset& dataset) {
  order_detail::DatasetShape shape;
  shape.block_samples.reserve(dataset.block_count());
  for (std::uint32_t i = 0; i < dataset.block_count(); ++i)
    shape.block_samples.push_back(dataset.block(i).sample_count);
  shape.shards.reserve(dataset.shard_count());
  for (std::uint32_t i = 0; i < dataset.shard_count(); ++i) {
    const Dataset::Shard shard = dataset.shard(i);
    shape.shards.push_back({.sample_count = shard.sample_count, .size_bytes = shard.size_bytes});
  }
  return shape;
}

}  // namespace

Result<std::shared_ptr<const OrderSource>> create_mosaic_source(const Dataset& dataset,
                                                                const MosaicSpec& spec,
                                                                std::vector<MosaicStream> streams,
                                                                const RunWorld& world,
                                                                const OrderTableOptions& tables) {
  return order_detail::create_mosaic_source(
      shape_of(dataset), spec, std::move(streams), world,
      [tables](const MosaicEpoch& epoch, const std::stop_token& stop) {
        return open_mosaic_list(epoch, tables, stop);
      });
}

Result<std::shared_ptr<const OrderSource>> create_litdata_source(const Dataset& dataset,
                                                                 const LitDataSpec& spec,
                                                                 const RunWorld& world) {
  return order_detail::create_litdata_source(shape_of(dataset), spec, world);
}

}  // namespace headrace
