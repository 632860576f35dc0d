#include "order.h"

#include <algorithm>
#include <memory>

#include "column_converter.h"
#include "dataset.h"
#include "errors.h"
#include "names.h"

namespace headrace {

EpochEnd parse_epoch_end(const std::string& name) {
  return by_name<EpochEnd>(
      "epoch_end", name,
      {{"pad", EpochEnd::kPad}, {"drop", EpochEnd::kDrop}, {"uneven", EpochEnd::kUneven}});
}

nb::dict spec_to_dict(const OrderSpec& spec) {
  nb::dict out;
  out["id"] = spec.id;
  out["version"] = spec.version;
  out["seed"] = spec.seed;
  out["lane_count"] = spec.lane_count;
  out["window_blocks"] = spec.window_blocks;
  out["bundle_lanes"] = spec.bundle_lanes;
  out["block_table_digest"] = spec.block_table_digest;
  return out;
}

OrderSpec spec_from_dict(const nb::dict& fields) {
  OrderSpec spec;
  spec.id = nb::cast<std::string>(fields["id"]);
  spec.version = nb::cast<std::uint32_t>(fields["version"]);
  spec.seed = nb::cast<std::uint64_t>(fields["seed"]);
  spec.lane_count = nb::cast<std::uint32_t>(fields["lane_count"]);
  spec.window_blocks = nb::cast<std::uint32_t>(fields["window_blocks"]);
  spec.bundle_lanes = nb::cast<std::uint32_t>(fields["bundle_lanes"]);
  spec.block_table_digest = nb::cast<std::uint64_t>(fields["block_table_digest"]);
  return spec;
}

nb::object make_int64_array(std::vector<std::int64_t> values) {
  auto* owned = new std::vector<std::int64_t>(std::move(values));
  const nb::capsule owner(
      owned, [](void* p) noexcept { delete static_cast<std::vector<std::int64_t>*>(p); });
  const std::size_t count = owned->size();
  return make_array(reinterpret_cast<std::byte*>(owned->data()), {&count, 1},
                    nb::dtype<std::int64_t>(), owner);
}

namespace {

struct PyEpochOrder {
  std::shared_ptr<const EpochOrder> order;
  std::shared_ptr<const Dataset> dataset;
};

void plan_epoch(PyEpochOrder* self, PyDataset& dataset, const nb::dict& spec_fields,
                std::uint64_t epoch) {
  auto data = dataset.reader.get()->dataset();
  const auto counts = block_samples(*data);
  new (self)
      PyEpochOrder{value_or_raise(EpochOrder::create(spec_from_dict(spec_fields), counts, epoch)),
                   std::move(data)};
}

/// Dataset positions of global samples [start, start + count), clipped to the epoch.
nb::object positions(PyEpochOrder& self, std::uint64_t start, std::uint64_t count,
                     std::uint64_t global_batch) {
  const std::uint64_t total = self.order->sample_count();
  const std::uint64_t begin = std::min(start, total);
  const std::uint64_t end = begin + std::min(count, total - begin);
  const Segment segment{0, std::max<std::uint64_t>(global_batch, 1)};
  std::vector<std::int64_t> out;
  out.reserve(end - begin);
  {
    ReleaseGil release;
    for (std::uint64_t t = begin; t < end; ++t) {
      out.push_back(static_cast<std::int64_t>(self.order->dataset_position(t, segment)));
    }
  }
  return make_int64_array(std::move(out));
}

nb::dict quality(PyEpochOrder& self, std::uint64_t global_batch, std::uint64_t probe_count) {
  const OrderQuality q = [&] {
    ReleaseGil release;
    return measure_quality(*self.order, {0, std::max<std::uint64_t>(global_batch, 1)}, probe_count);
  }();
  nb::dict out;
  out["mean_jump"] = q.mean_jump;
  out["mean_jump_full"] = q.mean_jump_full;
  out["mean_displacement"] = q.mean_displacement;
  out["neighbour_correlation"] = q.neighbour_correlation;
  out["blocks_per_batch"] = q.blocks_per_batch;
  return out;
}

/// Bytes of the largest window of any lane, as stored and (when compressed) inflated.
std::uint64_t largest_window_bytes(PyEpochOrder& self) {
  std::vector<std::uint64_t> weights(self.dataset->block_count());
  for (std::uint32_t i = 0; i < weights.size(); ++i) weights[i] = self.dataset->block(i).raw_bytes;
  return self.order->largest_window_weight(weights);
}

}  // namespace

void bind_order(nb::module_& m) {
  nb::class_<PyEpochOrder>(m, "EpochOrder")
      .def("__init__", &plan_epoch, nb::arg("dataset"), nb::arg("spec"), nb::arg("epoch") = 0)
      .def_prop_ro("sample_count", [](PyEpochOrder& self) { return self.order->sample_count(); })
      .def("positions", &positions, nb::arg("start"), nb::arg("count"), nb::arg("global_batch"))
      .def("quality", &quality, nb::arg("global_batch"),
           nb::arg("probe_count") = std::uint64_t{1} << 20)
      .def("largest_window_bytes", &largest_window_bytes);
}

}  // namespace headrace
