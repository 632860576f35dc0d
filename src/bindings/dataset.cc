#include "dataset.h"

#include <algorithm>
#include <string>

#include "errors.h"
#include "store.h"

namespace headrace {
namespace {

DatasetOptions make_options(const std::string& format, std::uint64_t block_bytes,
                            ProgressRelay& relay) {
  DatasetOptions options;
  options.format = value_or_raise(parse_format(format));
  options.block_bytes = block_bytes;
  options.progress = [&relay](std::uint64_t done, std::uint64_t total) {
    relay.store({done, total, 0});
  };
  return options;
}

void open_dataset(PyDataset* self, PyStore& store, const std::string& format,
                  std::uint64_t block_bytes, const std::string& index_cache_dir,
                  bool use_stored_index, const nb::object& progress) {
  auto client = store.client.get();
  ProgressRelay relay(progress);
  DatasetOptions options = make_options(format, block_bytes, relay);
  options.index_cache_dir = index_cache_dir;
  options.use_stored_index = use_stored_index;
  auto dataset = value_or_raise(run_interruptible(
      [&](std::stop_token stop) {
        return Dataset::open(client->store(), *client->pool(), options,
                             CallOptions{.stop = std::move(stop)});
      },
      [&relay] { relay.report(); }));
  relay.report();
  std::vector<ColumnDecoder> decoders;
  for (const Column& column : dataset->columns()) decoders.emplace_back(column);
  auto reader = std::make_shared<DatasetReader>(std::move(client), std::move(dataset));
  new (self)
      PyDataset{Guarded<DatasetReader>("the dataset", std::move(reader)), std::move(decoders)};
}

nb::bytes build_index_bytes(PyStore& store, const std::string& format, std::uint64_t block_bytes,
                            const nb::object& progress) {
  auto client = store.client.get();
  ProgressRelay relay(progress);
  const DatasetOptions options = make_options(format, block_bytes, relay);
  const std::string index = value_or_raise(run_interruptible(
      [&](std::stop_token stop) {
        return build_index(client->store(), *client->pool(), options,
                           CallOptions{.stop = std::move(stop)});
      },
      [&relay] { relay.report(); }));
  relay.report();
  return nb::bytes(index.data(), index.size());
}

/// Samples as a list of dicts, in the order asked for. `selected`: indices of the columns to
/// deliver.
nb::list read(PyDataset& self, const std::vector<std::uint64_t>& positions,
              const std::vector<std::size_t>& selected) {
  auto reader = self.reader.get();
  const std::uint64_t count = reader->dataset()->sample_count();
  for (const std::uint64_t position : positions) {
    if (position >= count) throw nb::index_error("sample position out of range");
  }
  std::vector<nb::object> samples(positions.size());
  raise_if_error(without_gil([&](const Pause& pause) {
    return reader->read(
        positions,
        [&](std::size_t index, std::span<const ColumnBytes> columns) {
          nb::gil_scoped_acquire acquire;
          nb::dict sample;
          for (const std::size_t c : selected) {
            sample[self.decoders[c].name()] = self.decoders[c].decode(columns[c], positions[index]);
          }
          samples[index] = std::move(sample);
          return Status();
        },
        pause);
  }));
  nb::list out;
  for (nb::object& sample : samples) out.append(std::move(sample));
  return out;
}

nb::list columns(PyDataset& self) {
  nb::list out;
  for (const Column& column : self.reader.get()->dataset()->columns()) {
    nb::list shape;
    for (const std::uint64_t dim : column.shape) shape.append(dim);
    out.append(nb::make_tuple(column.name, column.encoding, column.dtype, nb::tuple(shape),
                              column.fixed_size_bytes));
  }
  return out;
}

nb::tuple shard(PyDataset& self, std::uint32_t index) {
  auto reader = self.reader.get();
  if (index >= reader->dataset()->shard_count()) throw nb::index_error("shard out of range");
  const Dataset::Shard s = reader->dataset()->shard(index);
  return nb::make_tuple(s.key, s.etag, s.size_bytes, s.first_sample, s.sample_count, s.compression);
}

nb::tuple block(PyDataset& self, std::uint32_t index) {
  auto reader = self.reader.get();
  if (index >= reader->dataset()->block_count()) throw nb::index_error("block out of range");
  const Block b = reader->dataset()->block(index);
  return nb::make_tuple(b.shard, b.first_sample, b.sample_count, b.stored_bytes, b.raw_bytes);
}

template <class Get>
auto property(Get get) {
  return [get](PyDataset& self) { return get(*self.reader.get()->dataset()); };
}

}  // namespace

std::vector<std::uint32_t> block_samples(const Dataset& dataset) {
  std::vector<std::uint32_t> counts(dataset.block_count());
  for (std::uint32_t i = 0; i < dataset.block_count(); ++i)
    counts[i] = dataset.block(i).sample_count;
  return counts;
}

void bind_dataset(nb::module_& m) {
  m.def("build_index", &build_index_bytes, nb::arg("store"), nb::kw_only(),
        nb::arg("format") = "auto", nb::arg("block_bytes") = 0, nb::arg("progress") = nb::none());
  nb::class_<PyDataset>(m, "Dataset")
      .def("__init__", &open_dataset, nb::arg("store"), nb::kw_only(), nb::arg("format") = "auto",
           nb::arg("block_bytes") = 0, nb::arg("index_cache_dir") = "",
           nb::arg("use_stored_index") = true, nb::arg("progress") = nb::none())
      .def_prop_ro("url", property([](const Dataset& d) { return d.url(); }))
      .def_prop_ro("format",
                   property([](const Dataset& d) { return std::string(format_name(d.format())); }))
      .def_prop_ro("fingerprint", property([](const Dataset& d) { return d.fingerprint(); }))
      .def_prop_ro("sample_count", property([](const Dataset& d) { return d.sample_count(); }))
      .def_prop_ro("stored_bytes", property([](const Dataset& d) { return d.stored_bytes(); }))
      .def_prop_ro("shard_count", property([](const Dataset& d) { return d.shard_count(); }))
      .def_prop_ro("block_count", property([](const Dataset& d) { return d.block_count(); }))
      .def_prop_ro("largest_block_bytes",
                   property([](const Dataset& d) { return d.largest_block_bytes(); }))
      .def_prop_ro("closed", [](PyDataset& self) { return self.reader.is_closed(); })
      .def("columns", &columns)
      .def("shard", &shard, nb::arg("index"))
      .def("block", &block, nb::arg("index"))
      .def("read", &read, nb::arg("positions"), nb::arg("columns"))
      .def("close", [](PyDataset& self) { self.reader.drop(); });
}

}  // namespace headrace
