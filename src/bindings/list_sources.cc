// Orders of other loaders as sources that a Loader takes.
#include "headrace/list_sources.h"

#include "dataset.h"
#include "errors.h"
#include "mosaic.h"
#include "order_source.h"
#include "waiting.h"

namespace headrace {
namespace {

/// (world size, ranks a node, workers, batch size)
using WorldRow = std::tuple<std::uint32_t, std::uint32_t, std::uint32_t, std::uint32_t>;

RunWorld world_from(const WorldRow& row) {
  return {.world_size = std::get<0>(row),
          .ranks_per_node = std::get<1>(row),
          .workers = std::get<2>(row),
          .batch_size = std::get<3>(row)};
}

PyOrderSource make_mosaic(PyDataset& dataset, const nb::dict& spec_fields,
                          const std::vector<MosaicStreamRow>& streams, const WorldRow& world,
                          const std::string& directory) {
  const MosaicSpec spec = mosaic_spec_from(spec_fields);
  OrderTableOptions tables;
  tables.directory = directory;
  return {value_or_raise(create_mosaic_source(*dataset.reader.get()->dataset(), spec,
                                              mosaic_streams_from(streams), world_from(world),
                                              tables))};
}

PyOrderSource make_litdata(PyDataset& dataset, const nb::dict& spec_fields, const WorldRow& world) {
  const LitDataSpec spec = litdata_spec_from(spec_fields);
  const auto data = dataset.reader.get()->dataset();
  // Makes the list of the first epoch.
  auto source = run_interruptible([&](const std::stop_token&) {
    return create_litdata_source(*data, spec, world_from(world));
  });
  return {value_or_raise(std::move(source))};
}

}  // namespace

void bind_list_sources(nb::module_& m) {
  m.def("mosaic_source", &make_mosaic, nb::arg("dataset"), nb::arg("spec"), nb::arg("streams"),
        nb::arg("world"), nb::arg("directory") = "");
  m.def("litdata_source", &make_litdata, nb::arg("dataset"), nb::arg("spec"), nb::arg("world"));
}

}  // namespace headrace
