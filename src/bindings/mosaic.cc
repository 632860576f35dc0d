// Mosaic's orders for Python: an epoch's plan, and the ids in its slots.
#include "mosaic.h"

#include <algorithm>

#include "errors.h"
#include "fields.h"
#include "headrace/mosaic_order.h"
#include "headrace/order_table.h"
#include "order.h"
#include "process.h"
#include "waiting.h"

namespace headrace {
namespace {

struct PyMosaicEpoch {
  std::shared_ptr<const MosaicEpoch> epoch;
};

using StreamRow = MosaicStreamRow;
/// (physical nodes, ranks a node, workers, batch size)
using WorldRow = std::tuple<std::uint32_t, std::uint32_t, std::uint32_t, std::uint32_t>;

}  // namespace

MosaicSpec mosaic_spec_from(const nb::dict& fields) {
  MosaicSpec spec;
  read_field(fields, "shuffle", spec.shuffle);
  read_field(fields, "shuffle_algo", spec.shuffle_algo);
  read_field(fields, "shuffle_seed", spec.shuffle_seed);
  read_field(fields, "shuffle_block_size", spec.shuffle_block_size);
  read_field(fields, "sampling_method", spec.sampling_method);
  read_field(fields, "sampling_granularity", spec.sampling_granularity);
  read_field(fields, "partition_algo", spec.partition_algo);
  read_field(fields, "num_canonical_nodes", spec.num_canonical_nodes);
  read_field(fields, "batching_method", spec.batching_method);
  read_field(fields, "epoch_size", spec.epoch_size);
  return spec;
}

std::vector<MosaicStream> mosaic_streams_from(const std::vector<MosaicStreamRow>& rows) {
  std::vector<MosaicStream> streams;
  for (const auto& [samples, proportion, repeat, choose] : rows) {
    streams.push_back({samples, proportion, repeat, choose});
  }
  return streams;
}

namespace {

MosaicState state_from(const nb::dict& fields) {
  MosaicState state;
  read_field(fields, "epoch", state.epoch);
  read_field(fields, "sample_in_epoch", state.sample_in_epoch);
  read_field(fields, "num_canonical_nodes", state.num_canonical_nodes);
  read_field(fields, "initial_physical_nodes", state.initial_physical_nodes);
  std::uint64_t seed = 0;
  if (fields.contains("shuffle_seed") && !fields["shuffle_seed"].is_none()) {
    read_field(fields, "shuffle_seed", seed);
    state.shuffle_seed = seed;
  }
  return state;
}

MosaicWorld world_from(const WorldRow& row) {
  return {std::get<0>(row), std::get<1>(row), std::get<2>(row), std::get<3>(row)};
}

void plan_epoch(PyMosaicEpoch* self, const nb::dict& spec, const std::vector<StreamRow>& streams,
                const WorldRow& world, const nb::dict& state) {
  auto made = MosaicEpoch::create(mosaic_spec_from(spec), mosaic_streams_from(streams),
                                  world_from(world), state_from(state));
  new (self) PyMosaicEpoch{value_or_raise(std::move(made))};
}

nb::dict state_of(PyMosaicEpoch& self) {
  const MosaicState& state = self.epoch->state();
  nb::dict out;
  out["epoch"] = state.epoch;
  out["sample_in_epoch"] = state.sample_in_epoch;
  out["num_canonical_nodes"] = state.num_canonical_nodes;
  out["shuffle_seed"] = *state.shuffle_seed;
  out["initial_physical_nodes"] = state.initial_physical_nodes == 0
                                      ? nb::none()
                                      : nb::object(nb::int_(state.initial_physical_nodes));
  return out;
}

PySampleList open_list(PyMosaicEpoch& self, const std::string& directory, std::uint32_t threads) {
  OrderTableOptions options;
  options.directory = directory;
  options.threads = threads;
  auto list = run_interruptible(
      [&](const std::stop_token& stop) { return open_mosaic_list(*self.epoch, options, stop); });
  return {value_or_raise(std::move(list))};
}

/// Slots [start, start + count), clipped to the list.
nb::object read_slots(PySampleList& self, std::uint64_t start, std::uint64_t count) {
  const std::uint64_t total = self.list->size();
  const std::uint64_t begin = std::min(start, total);
  std::vector<std::int64_t> out(std::min(count, total - begin));
  {
    ReleaseGil release;
    self.list->read(begin, out);
  }
  return make_int64_array(std::move(out));
}

/// The slots of one rank in batches [first, first + count), back to back.
nb::object read_rank(PySampleList& self, std::uint32_t rank, std::uint32_t batch_size,
                     std::uint64_t global_batch, std::tuple<std::uint64_t, std::uint64_t> batches) {
  const auto [first, count] = batches;
  if (batch_size == 0 || global_batch == 0 || global_batch % batch_size != 0 ||
      rank >= global_batch / batch_size) {
    raise(Status(Code::kInvalidArgument, "rank, batch size and global batch do not fit together"));
  }
  const std::uint64_t total = self.list->size() / global_batch;
  const std::uint64_t begin = std::min(first, total);
  std::vector<std::int64_t> out(std::min(count, total - begin) * batch_size);
  {
    ReleaseGil release;
    const std::span<std::int64_t> all(out);
    for (std::uint64_t k = 0; k * batch_size < out.size(); ++k) {
      self.list->read((begin + k) * global_batch + std::uint64_t{rank} * batch_size,
                      all.subspan(k * batch_size, batch_size));
    }
  }
  return make_int64_array(std::move(out));
}

WorldRow replicate(const WorldRow& world, std::uint32_t replication) {
  const MosaicWorld out = value_or_raise(replicate_world(world_from(world), replication));
  return {out.physical_nodes, out.ranks_per_node, out.workers, out.batch_size};
}

std::tuple<std::vector<std::uint64_t>, std::vector<double>, std::uint64_t> weigh(
    const std::vector<StreamRow>& streams, std::uint64_t epoch_size, std::uint64_t seed) {
  auto weights =
      value_or_raise(apply_mosaic_weights(mosaic_streams_from(streams), epoch_size, seed));
  return {weights.choose, weights.proportion, weights.epoch_size};
}

}  // namespace

void bind_mosaic(nb::module_& m) {
  nb::class_<PySampleList>(m, "SampleList")
      .def_prop_ro("size", [](PySampleList& self) { return self.list->size(); })
      .def("read", &read_slots, nb::arg("start"), nb::arg("count"))
      .def("read_rank", &read_rank, nb::arg("rank"), nb::arg("batch_size"), nb::arg("global_batch"),
           nb::arg("batches"));
  nb::class_<PyMosaicEpoch>(m, "MosaicEpoch")
      .def("__init__", &plan_epoch, nb::arg("spec"), nb::arg("streams"), nb::arg("world"),
           nb::arg("state"))
      .def_prop_ro("table_bytes", [](PyMosaicEpoch& self) { return self.epoch->table_bytes(); })
      .def_prop_ro("epoch_size",
                   [](PyMosaicEpoch& self) { return self.epoch->weights().epoch_size; })
      .def_prop_ro("choose", [](PyMosaicEpoch& self) { return self.epoch->weights().choose; })
      .def_prop_ro("proportion",
                   [](PyMosaicEpoch& self) { return self.epoch->weights().proportion; })
      .def_prop_ro("state", &state_of)
      .def("open", &open_list, nb::arg("directory") = "", nb::arg("threads") = 0);
  m.def("replicate_mosaic_world", &replicate, nb::arg("world"), nb::arg("replication"));
  m.def("apply_mosaic_weights", &weigh, nb::arg("streams"), nb::arg("epoch_size"), nb::arg("seed"));
}

}  // namespace headrace
