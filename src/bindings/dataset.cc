// What may wait for a store runs on a thread without the GIL (run_interruptible()) and touches
// nothing of Python: options are read before it and results converted after it. Progress comes
// from the engine's threads into the relay, and the calling thread hands it to Python between two
// waits.
#include "dataset.h"

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "errors.h"
#include "headrace/rebuild.h"
#include "names.h"
#include "option_table.h"
#include "store.h"

namespace headrace {
namespace {

OnBrokenShard parse_on_broken_shard(const std::string& name) {
  return by_name<OnBrokenShard>(
      "on_broken_shard", name,
      {{"raise", OnBrokenShard::kRaise}, {"leave_out", OnBrokenShard::kLeaveOut}});
}

OptionTable<DatasetOptions> make_dataset_table() {
  return {
      {"format",
       [](DatasetOptions& options, nb::handle value) {
         raise_if_error(set_format(options, nb::cast<std::string>(value)));
       }},
      {"block_bytes", plain(&DatasetOptions::block_bytes)},
      {"index_cache_dir", plain(&DatasetOptions::index_cache_dir)},
      {"use_stored_index", plain(&DatasetOptions::use_stored_index)},
      {"allow_unsafe", plain(&DatasetOptions::allow_unsafe)},
      {"keys", plain(&DatasetOptions::keys)},
      {"split", plain(&DatasetOptions::split)},
      {"tokens_per_sample", plain(&DatasetOptions::tokens_per_sample)},
      {"token_dtype", plain(&DatasetOptions::token_dtype)},
      {"labels", plain(&DatasetOptions::labels)},
      {"manifest", plain(&DatasetOptions::manifest)},
      {"columns", plain(&DatasetOptions::columns)},
      {"row_groups_where", plain(&DatasetOptions::row_groups_where)},
      {"password", plain(&DatasetOptions::password)},
      {"password_salt", plain(&DatasetOptions::password_salt)},
      {"lenient", plain(&DatasetOptions::lenient)},
      {"on_broken_shard", parsed(&DatasetOptions::on_broken_shard, parse_on_broken_shard)},
      {"index_workers", plain(&DatasetOptions::index_workers)},
  };
}

DatasetOptions make_options(const nb::kwargs& arguments, ProgressRelay& relay) {
  static const OptionTable<DatasetOptions> kTable = make_dataset_table();
  DatasetOptions options;
  options.progress = [&relay](std::uint64_t done, std::uint64_t total) {
    relay.store({done, total, 0});
  };
  kTable.apply(arguments, options);
  return options;
}

void open_dataset(PyDataset* self, PyStore& store, const nb::object& progress,
                  const nb::kwargs& arguments) {
  auto client = store.client.get();
  ProgressRelay relay(progress);
  const DatasetOptions options = make_options(arguments, relay);
  auto dataset = value_or_raise(run_interruptible(
      [&](std::stop_token stop) {
        return Dataset::open(client->store(), *client->pool(), options,
                             CallOptions{.stop = std::move(stop)});
      },
      [&relay] { relay.report(); }));
  relay.report();
  std::vector<ColumnConverter> converters;
  for (const Column& column : dataset->columns()) converters.emplace_back(output_of(column));
  auto reader = std::make_shared<SampleReader>(std::move(client), std::move(dataset));
  new (self)
      PyDataset{Guarded<SampleReader>("the dataset", std::move(reader)), std::move(converters)};
}

nb::bytes build_index_bytes(PyStore& store, const nb::object& progress,
                            const nb::kwargs& arguments) {
  auto client = store.client.get();
  ProgressRelay relay(progress);
  const DatasetOptions options = make_options(arguments, relay);
  const std::string index = value_or_raise(run_interruptible(
      [&](std::stop_token stop) {
        return build_index(client->store(), *client->pool(), options,
                           CallOptions{.stop = std::move(stop)});
      },
      [&relay] { relay.report(); }));
  relay.report();
  return nb::bytes(index.data(), index.size());
}

std::string rebuild_index_json(PyStore& store, const nb::object& progress,
                               const nb::kwargs& arguments) {
  auto client = store.client.get();
  ProgressRelay relay(progress);
  const DatasetOptions options = make_options(arguments, relay);
  return value_or_raise(run_interruptible(
      [&](std::stop_token stop) {
        return rebuild_mds_index(client->store(), *client->pool(), options,
                                 CallOptions{.stop = std::move(stop)});
      },
      [&relay] { relay.report(); }));
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
  const Status status = without_gil([&](const Pause& pause) {
    return reader->read(
        positions,
        [&](std::size_t index, std::span<const ColumnBytes> columns) {
          nb::gil_scoped_acquire acquire;
          nb::dict sample;
          for (const std::size_t c : selected) {
            sample[self.converters[c].name()] =
                self.converters[c].convert(columns[c], positions[index]);
          }
          samples[index] = std::move(sample);
          return Status();
        },
        pause);
  });
  check_signals();  // Ctrl-C while a table was unpacked on this thread.
  raise_if_error(status);
  nb::list out;
  for (nb::object& sample : samples) out.append(std::move(sample));
  return out;
}

nb::list columns(PyDataset& self) {
  nb::list out;
  for (const Column& column : self.reader.get()->dataset()->columns()) {
    nb::list shape;
    for (const std::uint64_t dim : column.shape) shape.append(dim);
    nb::list classes;
    for (const std::string& name : column.classes) classes.append(nb::cast(name));
    out.append(nb::make_tuple(column.name, column.encoding, column.dtype, nb::tuple(shape),
                              column.fixed_size_bytes, nb::tuple(classes)));
  }
  return out;
}

nb::list broken_shards(PyDataset& self) {
  nb::list out;
  for (const BrokenShard& s : self.reader.get()->dataset()->broken_shards()) {
    out.append(nb::make_tuple(s.key, s.etag, s.size_bytes, std::string(code_name(s.code)),
                              s.message, s.first_sample, s.sample_count));
  }
  return out;
}

nb::list cut_ends(PyDataset& self) {
  nb::list out;
  for (const CutEnd& end : self.reader.get()->dataset()->cut_ends())
    out.append(nb::make_tuple(end.key, end.cut_bytes));
  return out;
}

nb::tuple shard(PyDataset& self, std::uint32_t index) {
  auto reader = self.reader.get();
  if (index >= reader->dataset()->shard_count()) throw nb::index_error("shard out of range");
  const Dataset::Shard s = reader->dataset()->shard(index);
  return nb::make_tuple(s.key, s.etag, s.size_bytes, s.first_sample, s.sample_count, s.compression,
                        s.hashes);
}

nb::tuple block(PyDataset& self, std::uint32_t index) {
  auto reader = self.reader.get();
  if (index >= reader->dataset()->block_count()) throw nb::index_error("block out of range");
  const Block b = reader->dataset()->block(index);
  return nb::make_tuple(b.shard, b.first_sample, b.sample_count, b.stored_bytes, b.raw_bytes);
}

std::string ending_of(std::string_view key) {
  const std::string_view name = key.substr(key.rfind('/') + 1);
  const std::size_t dot = name.rfind('.');
  std::string ending(dot == std::string_view::npos ? "" : name.substr(dot + 1));
  for (char& letter : ending)
    if (letter >= 'A' && letter <= 'Z') letter = static_cast<char>(letter - 'A' + 'a');
  return ending;
}

/// Endings of the names of all objects that have bytes, in small letters and without the dot, and
/// how many have each. O(objects), from the index.
std::map<std::string, std::uint64_t> count_endings(const Dataset& dataset) {
  std::map<std::string, std::uint64_t> counts;
  std::vector<Extent> extents;
  for (std::uint32_t i = 0; i < dataset.block_count(); ++i) {
    extents.clear();
    dataset.append_extents(i, 0, dataset.block(i).sample_count, extents);
    for (const Extent& extent : extents) ++counts[ending_of(extent.key)];
  }
  return counts;
}

nb::dict key_endings(PyDataset& self) {
  const auto reader = self.reader.get();
  std::map<std::string, std::uint64_t> counts;
  {
    nb::gil_scoped_release release;
    counts = count_endings(*reader->dataset());
  }
  nb::dict out;
  for (const auto& [ending, count] : counts) out[nb::cast(ending)] = count;
  return out;
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
  m.def("format_names", &format_names);
  m.def("format_kinds", &format_kinds);
  m.def("build_index", &build_index_bytes, nb::arg("store"), nb::kw_only(),
        nb::arg("progress") = nb::none(), nb::arg("options"));
  m.def("rebuild_index_json", &rebuild_index_json, nb::arg("store"), nb::kw_only(),
        nb::arg("progress") = nb::none(), nb::arg("options"));
  nb::class_<PyDataset>(m, "Dataset")
      .def("__init__", &open_dataset, nb::arg("store"), nb::kw_only(),
           nb::arg("progress") = nb::none(), nb::arg("options"))
      .def_prop_ro("url", property([](const Dataset& d) { return d.url(); }))
      .def_prop_ro("format",
                   property([](const Dataset& d) { return std::string(format_name(d.format())); }))
      .def_prop_ro("fingerprint", property([](const Dataset& d) { return d.fingerprint(); }))
      .def_prop_ro("version_fingerprint",
                   property([](const Dataset& d) { return d.version_fingerprint(); }))
      .def_prop_ro("sample_count", property([](const Dataset& d) { return d.sample_count(); }))
      .def_prop_ro("stored_bytes", property([](const Dataset& d) { return d.stored_bytes(); }))
      .def_prop_ro("shard_count", property([](const Dataset& d) { return d.shard_count(); }))
      .def_prop_ro("block_count", property([](const Dataset& d) { return d.block_count(); }))
      .def_prop_ro("largest_block_bytes",
                   property([](const Dataset& d) { return d.largest_block_bytes(); }))
      .def_prop_ro("closed", [](PyDataset& self) { return self.reader.is_closed(); })
      .def("columns", &columns)
      .def("broken_shards", &broken_shards)
      .def("cut_ends", &cut_ends)
      .def("shard", &shard, nb::arg("index"))
      .def("block", &block, nb::arg("index"))
      .def("key_endings", &key_endings)
      .def("read", &read, nb::arg("positions"), nb::arg("columns"))
      .def("close", [](PyDataset& self) { self.reader.drop(); });
}

}  // namespace headrace
