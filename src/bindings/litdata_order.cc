// LitData's orders for Python.
#include "headrace/litdata_order.h"

#include "errors.h"
#include "fields.h"
#include "mosaic.h"
#include "order.h"
#include "waiting.h"

namespace headrace {
namespace {

/// (begin, roi begin, roi end, end, bytes)
using ChunkRow =
    std::tuple<std::uint64_t, std::uint64_t, std::uint64_t, std::uint64_t, std::uint64_t>;
/// (ranks, nodes, workers, batch size)
using WorldRow = std::tuple<std::uint32_t, std::uint32_t, std::uint32_t, std::uint32_t>;

LitDataWorld world_from(const WorldRow& row) {
  return {std::get<0>(row), std::get<1>(row), std::get<2>(row), std::get<3>(row)};
}

}  // namespace

LitDataSpec litdata_spec_from(const nb::dict& fields) {
  LitDataSpec spec;
  read_field(fields, "shuffle", spec.shuffle);
  read_field(fields, "seed", spec.seed);
  read_field(fields, "drop_last", spec.drop_last);
  read_field(fields, "window", spec.window);
  read_field(fields, "max_cache_size", spec.max_cache_size);
  if (fields.contains("item_shuffle_window")) {
    spec.item_shuffle_window =
        nb::cast<std::optional<std::uint32_t>>(fields["item_shuffle_window"]);
  }
  return spec;
}

namespace {

LitDataState state_from(const nb::dict& fields, const LitDataWorld& world) {
  LitDataState state;
  state.saved_by = world;
  state.initial = world;
  read_field(fields, "epoch", state.epoch);
  read_field(fields, "num_samples_yielded", state.num_samples_yielded);
  read_field(fields, "sample_in_epoch", state.sample_in_epoch);
  read_field(fields, "is_elastic", state.is_elastic);
  if (fields.contains("saved_by"))
    state.saved_by = world_from(nb::cast<WorldRow>(fields["saved_by"]));
  if (fields.contains("initial")) state.initial = world_from(nb::cast<WorldRow>(fields["initial"]));
  return state;
}

PySampleList make_list(const nb::dict& spec, const std::vector<ChunkRow>& rows,
                       const WorldRow& world_row, const nb::dict& state_fields) {
  std::vector<LitDataChunk> chunks;
  for (const auto& [begin, roi_begin, roi_end, end, bytes] : rows) {
    chunks.push_back({begin, roi_begin, roi_end, end, bytes});
  }
  const LitDataWorld world = world_from(world_row);
  const LitDataSpec order = litdata_spec_from(spec);
  const LitDataState state = state_from(state_fields, world);
  auto list = run_interruptible(
      [&](const std::stop_token&) { return resume_litdata_list(order, chunks, world, state); });
  return {value_or_raise(std::move(list))};
}

nb::object combine(const nb::dict& fields, const std::vector<std::uint64_t>& lengths,
                   std::uint64_t replayed) {
  LitDataCombinedSpec spec;
  read_field(fields, "weights", spec.weights);
  read_field(fields, "seed", spec.seed);
  read_field(fields, "iterate_over_all", spec.iterate_over_all);
  read_field(fields, "is_per_stream", spec.is_per_stream);
  read_field(fields, "batch_size", spec.batch_size);
  const auto sets = value_or_raise(combine_litdata(spec, lengths, replayed));
  return make_int64_array({sets.begin(), sets.end()});
}

}  // namespace

void bind_litdata_order(nb::module_& m) {
  m.def("litdata_list", &make_list, nb::arg("spec"), nb::arg("chunks"), nb::arg("world"),
        nb::arg("state"));
  m.def("combine_litdata", &combine, nb::arg("spec"), nb::arg("lengths"), nb::arg("replayed") = 0);
}

}  // namespace headrace
