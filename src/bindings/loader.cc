// Nobody waits for the position's mutex with the GIL in hand: the thread that has the mutex needs
// the GIL to make its batch, and both would wait for ever. So lock_position() tries with the GIL
// and waits without it. All other waiting is in slices (waiting.h), so that Ctrl-C acts at once.
//
// A batch counts as received only when Python has it: where converting fails or is interrupted,
// unread() takes the step back, and a state saved then goes on with this batch.
#include "headrace/loader.h"

#include <nanobind/stl/map.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/tuple.h>

#include <functional>
#include <mutex>
#include <string>
#include <tuple>
#include <utility>

#include "batch_owner.h"
#include "batch_reader.h"
#include "cache.h"
#include "column_converter.h"
#include "dataset.h"
#include "decode.h"
#include "errors.h"
#include "headrace/node_fill.h"
#include "headrace/trace_reads.h"
#include "metrics.h"
#include "names.h"
#include "order.h"
#include "order_source.h"
#include "store.h"

namespace headrace {
namespace {

/// What a loader needs to live. Members die in reverse order: the loader before the store that it
/// reads from.
struct LoaderParts {
  std::shared_ptr<StoreClient> client;
  std::shared_ptr<const Dataset> dataset;
  LoaderOptions options;
  std::unique_ptr<Loader> loader;
  std::timed_mutex mutex;  // One thread at a time moves the position.
};

struct PyLoader {
  Guarded<LoaderParts> parts;
  std::vector<ColumnConverter> converters;  // One a delivered column.
  nb::object batch_type;
};

/// A batch that next() has counted, before Python has anything of it.
struct TakenBatch {
  SharedBatch owner;
  nb::bytes ids() const {
    const auto ids = owner->batch().ids();
    return nb::bytes(ids.data(), ids.size_bytes());
  }
  /// For BatchReader; nullopt: other processes cannot map it.
  std::optional<nb::bytes> place() const {
    const std::vector<std::int64_t> numbers = place_of(owner->batch());
    if (numbers.empty()) return std::nullopt;
    return nb::bytes(numbers.data(), numbers.size() * sizeof(std::int64_t));
  }
  /// -1: other processes cannot map it.
  int fd() const {
    const auto memory = owner->batch().shared();
    return memory ? memory->place.fd : -1;
  }
};

/// What a state says of a position, to be written when it is asked for.
struct PyState {
  std::function<std::string()> write;
};

/// Locks the position without holding up other Python threads.
std::unique_lock<std::timed_mutex> lock_position(LoaderParts& parts) {
  std::unique_lock lock(parts.mutex, std::try_to_lock);
  while (!lock.owns_lock()) {
    {
      ReleaseGil release;
      static_cast<void>(lock.try_lock_for(kSignalSlice));
    }
    if (!lock.owns_lock()) check_signals();
  }
  return lock;
}

/// Makes Python's value of a batch that next() has counted.
template <class Make>
nb::object receive(Loader& loader, const Make& make) {
  try {
    return make();
  } catch (...) {
    // A value that cannot be converted, or Ctrl-C: the loop has not received this batch, so it
    // must not be counted.
    ReleaseGil release;
    static_cast<void>(loader.unread());
    throw;
  }
}

/// The next batch as `make` has it, None at the end of the epoch.
template <class Make>
nb::object next_as(PyLoader& self, const Make& make) {
  auto parts = self.parts.get();
  const auto lock = lock_position(*parts);
  auto batch = without_gil([&](const Pause& pause) { return next_batch(*parts->loader, pause); });
  if (!batch) raise(batch.error());
  if (*batch == nullptr) return nb::none();
  return receive(*parts->loader,
                 [&] { return make(std::make_shared<const BatchOwner>(*std::move(batch))); });
}

nb::object next(PyLoader& self) {
  return next_as(self, [&](const SharedBatch& owner) {
    return make_batch(self.converters, self.batch_type, owner);
  });
}

nb::object take(PyLoader& self) {
  return next_as(self, [](const SharedBatch& owner) { return nb::cast(TakenBatch{owner}); });
}

/// What next() would have returned for the batch that take() returned last.
nb::object open(PyLoader& self, const TakenBatch& taken) {
  auto parts = self.parts.get();
  const auto lock = lock_position(*parts);
  return receive(*parts->loader,
                 [&] { return make_batch(self.converters, self.batch_type, taken.owner); });
}

/// As BatchReader wants them.
nb::list columns(PyLoader& self) {
  nb::list out;
  for (const OutputColumn& column : self.parts.get()->loader->schema())
    out.append(nb::make_tuple(column.name, column.encoding, column.dtype, nb::cast(column.shape),
                              column.fixed_size_bytes));
  return out;
}

LoaderOptions make_options(std::uint32_t batch_size, std::uint32_t rank, std::uint32_t world_size,
                           const std::string& order, std::uint64_t seed,
                           const std::string& epoch_end) {
  return {.batch_size = batch_size,
          .rank = rank,
          .world_size = world_size,
          .order = order,
          .seed = seed,
          .epoch_end = parse_epoch_end(epoch_end)};
}

OnBadSample parse_on_bad_sample(const std::string& name) {
  return by_name<OnBadSample>("on_bad_sample", name,
                              {{"raise", OnBadSample::kRaise}, {"replace", OnBadSample::kReplace}});
}

CacheDecoded parse_cache_decoded(const std::string& name) {
  return by_name<CacheDecoded>("cache_decoded", name,
                               {{"auto", CacheDecoded::kAuto},
                                {"always", CacheDecoded::kAlways},
                                {"never", CacheDecoded::kOff}});
}

using PyRanges = std::vector<std::pair<std::uint64_t, std::uint64_t>>;

std::vector<SampleRange> to_ranges(const PyRanges& pairs) {
  std::vector<SampleRange> ranges;
  ranges.reserve(pairs.size());
  for (const auto& [begin, end] : pairs) ranges.push_back({begin, end});
  return ranges;
}

/// Ranges of the samples that rows of a quarantine list (key, position, samples) name.
PyRanges find_quarantined_ranges(
    PyDataset& dataset,
    const std::vector<std::tuple<std::string, std::int64_t, std::uint64_t>>& rows) {
  std::vector<QuarantineEntry> entries;
  entries.reserve(rows.size());
  for (const auto& [key, position, sample_count] : rows)
    entries.push_back({.key = key, .position = position, .sample_count = sample_count});
  auto reader = dataset.reader.get();
  auto found = [&] {
    ReleaseGil release;
    return find_quarantined(*reader->dataset(), entries);
  }();
  PyRanges out;
  for (const SampleRange& range : value_or_raise(std::move(found)))
    out.emplace_back(range.begin, range.end);
  return out;
}

/// (position, samples, message) of what was found bad and replaced.
nb::list bad_samples(PyLoader& self) {
  nb::list out;
  for (const BadSample& bad : self.parts.get()->loader->bad_samples())
    out.append(nb::make_tuple(bad.position, bad.sample_count, bad.message));
  return out;
}

void open_loader(PyLoader* self, PyDataset& dataset, PyStore& store, nb::object batch_type,
                 LoaderOptions options, const nb::object& to_arrow) {
  auto parts = std::make_shared<LoaderParts>();
  parts->client = store.client.get();
  parts->client->set_rank(options.rank);
  auto data = dataset.reader.get()->dataset();
  parts->dataset = data;
  parts->options = options;
  auto handle = value_or_raise(parts->client->store().new_handle());
  auto loader = [&] {
    ReleaseGil release;
    return Loader::create(data, std::move(handle), parts->client->pool(), options);
  }();
  parts->loader = value_or_raise(std::move(loader));
  std::vector<ColumnConverter> converters;
  for (const OutputColumn& column : parts->loader->schema())
    converters.emplace_back(column, to_arrow);
  new (self) PyLoader{Guarded<LoaderParts>("the loader", std::move(parts)), std::move(converters),
                      std::move(batch_type)};
}

/// dtype by name of the columns whose values are arrays, as the data says it: numpy may lack it.
std::map<std::string, std::string> column_dtypes(PyLoader& self) {
  std::map<std::string, std::string> found;
  for (const OutputColumn& column : self.parts.get()->loader->schema())
    if (!column.dtype.empty()) found.emplace(column.name, column.dtype);
  return found;
}

void load_state(PyLoader& self, const std::string& json) {
  auto parts = self.parts.get();
  const auto lock = lock_position(*parts);
  raise_if_error(run_interruptible(
      [&](const std::stop_token& stop) { return parts->loader->load_state(json, stop); }));
}

void seek(PyLoader& self, std::uint64_t epoch, std::uint64_t batch) {
  auto parts = self.parts.get();
  const auto lock = lock_position(*parts);
  raise_if_error(run_interruptible(
      [&](const std::stop_token& stop) { return parts->loader->seek(epoch, batch, stop); }));
}

void set_order_source(PyLoader& self, const PyOrderSource& source) {
  auto parts = self.parts.get();
  const auto lock = lock_position(*parts);
  raise_if_error(run_interruptible([&](const std::stop_token& stop) {
    return parts->loader->set_order_source(source.source, stop);
  }));
}

void end_epoch(PyLoader& self) {
  auto parts = self.parts.get();
  const auto lock = lock_position(*parts);
  parts->loader->end_epoch();
}

void start_epoch(PyLoader& self) {
  auto parts = self.parts.get();
  const auto lock = lock_position(*parts);
  raise_if_error(run_interruptible(
      [&](const std::stop_token& stop) { return parts->loader->start_epoch(stop); }));
}

/// What needs the order of an epoch, which may take seconds to make or to wait for.
template <class Ask>
auto planned(PyLoader& self, Ask ask) {
  auto parts = self.parts.get();
  return run_interruptible([&](const std::stop_token& stop) { return ask(*parts->loader, stop); });
}

std::uint64_t batches_left(PyLoader& self) {
  return value_or_raise(planned(
      self, [](Loader& loader, const std::stop_token& stop) { return loader.batches_left(stop); }));
}

std::uint64_t epoch_batches(PyLoader& self) {
  return value_or_raise(planned(self, [](Loader& loader, const std::stop_token& stop) {
    return loader.epoch_batches(stop);
  }));
}

double lane_readers(PyLoader& self) {
  return value_or_raise(planned(
      self, [](Loader& loader, const std::stop_token& stop) { return loader.lane_readers(stop); }));
}

/// Positions of one batch as an int64 array; None past the end of the epoch.
nb::object sample_ids(PyLoader& self, std::uint64_t epoch, std::uint64_t batch_index) {
  const auto ask = [&](Loader& loader, const std::stop_token& stop) {
    return loader.sample_ids(epoch, batch_index, stop);
  };
  // The order of the epoch was made for the first batch; the others do not wait.
  auto result = batch_index == 0 ? planned(self, ask) : [&] {
    auto parts = self.parts.get();
    ReleaseGil release;
    return ask(*parts->loader, {});
  }();
  if (!result && result.error().code() == Code::kNotFound) return nb::none();
  return make_int64_array(value_or_raise(std::move(result)));
}

/// By block; kNever: no rank asked for needs it.
std::vector<std::uint64_t> block_needs(PyLoader& self, std::uint64_t epochs,
                                       std::uint32_t first_rank, std::uint32_t ranks) {
  return value_or_raise(planned(self, [&](Loader& loader, const std::stop_token& stop) {
    return loader.block_needs(epochs, first_rank, ranks, stop);
  }));
}

PyFill fill_beside(PyLoader& self, PyCache& cache, std::uint32_t rank, std::uint32_t node_first,
                   std::uint32_t node_ranks, std::uint64_t epochs_left,
                   std::uint64_t memory_bytes) {
  auto parts = self.parts.get();
  auto handle = value_or_raise(parts->client->store().new_handle());
  auto data = parts->dataset;
  const NodeFill node{.rank = rank,
                      .first_rank = node_first,
                      .rank_count = node_ranks,
                      .epochs_left = epochs_left,
                      .memory_bytes = memory_bytes};
  const auto plan = [parts, node](const std::stop_token& stop) {
    return plan_node_fill(*parts->loader, node, stop);
  };
  return PyFill{Guarded<BackgroundFill>(
      "what fills the cache", std::make_shared<BackgroundFill>(std::move(data), std::move(handle),
                                                               cache.cache.get(), plan))};
}

/// The reads of a run of `epochs` epochs of a loader like this that has a cache, for `ranks` ranks
/// from its own on.
PyReadTrace trace_reads_of(PyLoader& self, std::uint32_t ranks, std::uint64_t epochs,
                           std::uint64_t memory_bytes, const nb::object& progress) {
  auto parts = self.parts.get();
  ProgressRelay relay(progress);
  TraceOptions options{.loader = parts->options,
                       .ranks = ranks,
                       .epochs = epochs,
                       .memory_bytes = memory_bytes - StoreClient::cache_buffer_bytes(memory_bytes),
                       .progress = {}};
  options.loader.decode.clear();
  options.loader.epoch_count = epochs;
  options.progress = [&relay](std::uint64_t done, std::uint64_t all) {
    relay.store({done, all, 0});
  };
  auto trace = run_interruptible(
      [&](const std::stop_token& stop) {
        return trace_reads(parts->dataset, parts->client->store(), options, stop);
      },
      [&] { relay.report(); });
  return PyReadTrace{std::make_shared<const ReadTrace>(value_or_raise(std::move(trace)))};
}

nb::list metrics(PyLoader& self) { return make_metrics(self.parts.get()->loader->stats()); }

void close(PyLoader& self) {
  if (auto parts = self.parts.peek()) {
    ReleaseGil release;
    parts->loader->stop();
  }
  self.parts.drop();
}

void bind_what_loaders_return(nb::module_& m) {
  nb::class_<TakenBatch>(m, "TakenBatch")
      .def_prop_ro("ids", &TakenBatch::ids)
      .def_prop_ro("epoch", [](const TakenBatch& self) { return self.owner->batch().epoch(); })
      .def_prop_ro("index", [](const TakenBatch& self) { return self.owner->batch().index(); })
      .def_prop_ro("replaced",
                   [](const TakenBatch& self) { return self.owner->batch().replaced().size(); })
      .def_prop_ro("fd", &TakenBatch::fd)
      .def("place", &TakenBatch::place);
  nb::class_<PyState>(m, "LoaderState").def("text", [](const PyState& self) {
    return self.write();
  });
}

}  // namespace

void bind_loader(nb::module_& m) {
  nb::list causes;
  for (int cause = 0; cause < static_cast<int>(StallCause::kCount); ++cause) {
    causes.append(stall_cause_name(static_cast<StallCause>(cause)));
  }
  m.attr("STALL_CAUSES") = nb::tuple(causes);
  m.def("find_quarantined", &find_quarantined_ranges, nb::arg("dataset"), nb::arg("rows"));
  bind_what_loaders_return(m);
  nb::class_<PyLoader>(m, "Loader")
      .def(
          "__init__",
          [](PyLoader* self, PyDataset& dataset, PyStore& store, nb::object batch_type,
             std::uint32_t batch_size, std::uint32_t rank, std::uint32_t world_size,
             const std::string& order, std::uint64_t seed, const std::string& epoch_end,
             std::uint32_t window_blocks, std::uint32_t lane_count, std::uint32_t prefetch,
             std::uint32_t workers, std::vector<std::string> columns, double read_timeout,
             const PyOrderSource* order_source, const std::string& on_bad_sample,
             const PyRanges& quarantine, std::vector<std::uint32_t> source_blocks,
             std::optional<nb::object> to_arrow, const std::map<std::string, PyDecode>& decode,
             std::uint64_t epochs, std::uint64_t order_memory_bytes,
             const std::string& cache_decoded, const PyValueCache* value_cache,
             bool keep_in_memory) {
            LoaderOptions options =
                make_options(batch_size, rank, world_size, order, seed, epoch_end);
            options.window_blocks = window_blocks;
            options.lane_count = lane_count;
            options.prefetch_batches = prefetch;
            options.worker_count = workers;
            options.epoch_count = epochs;
            options.cache_decoded = parse_cache_decoded(cache_decoded);
            if (value_cache != nullptr) options.value_cache = value_cache->values;
            options.order_memory_bytes = order_memory_bytes;
            options.keep_in_memory = keep_in_memory;
            options.columns = std::move(columns);
            for (const auto& [name, how] : decode) options.decode[name] = how.decode;
            options.on_bad_sample = parse_on_bad_sample(on_bad_sample);
            options.quarantine = to_ranges(quarantine);
            options.source_blocks = std::move(source_blocks);
            if (order_source != nullptr) options.order_source = order_source->source;
            options.read_timeout =
                std::chrono::milliseconds(static_cast<std::int64_t>(read_timeout * 1e3));
            open_loader(self, dataset, store, std::move(batch_type), std::move(options),
                        to_arrow.value_or(nb::object()));
          },
          nb::arg("dataset"), nb::arg("store"), nb::arg("batch_type"), nb::kw_only(),
          nb::arg("batch_size"), nb::arg("rank") = 0, nb::arg("world_size") = 1,
          nb::arg("order") = "headrace", nb::arg("seed") = 0, nb::arg("epoch_end") = "pad",
          nb::arg("window_blocks") = 0, nb::arg("lane_count") = 0, nb::arg("prefetch") = 16,
          nb::arg("workers") = 0, nb::arg("columns") = std::vector<std::string>(),
          nb::arg("read_timeout") = 120.0, nb::arg("order_source").none() = nb::none(),
          nb::arg("on_bad_sample") = "raise", nb::arg("quarantine") = PyRanges(),
          nb::arg("source_blocks") = std::vector<std::uint32_t>(),
          nb::arg("to_arrow").none() = nb::none(),
          nb::arg("decode") = std::map<std::string, PyDecode>(), nb::arg("epochs") = 0,
          nb::arg("order_memory_bytes") = 0, nb::arg("cache_decoded") = "auto",
          nb::arg("value_cache").none() = nb::none(), nb::arg("keep_in_memory") = true)
      .def("bad_samples", &bad_samples)
      .def("set_order_source", &set_order_source, nb::arg("source"))
      .def("column_dtypes", &column_dtypes)
      .def_prop_ro("has_ended",
                   [](PyLoader& self) { return self.parts.get()->loader->has_ended(); })
      .def_prop_ro("has_taken_all",
                   [](PyLoader& self) { return self.parts.get()->loader->has_taken_all(); })
      .def_prop_ro("is_ready", [](PyLoader& self) { return self.parts.get()->loader->is_ready(); })
      .def("end_epoch", &end_epoch)
      .def("start_epoch", &start_epoch)
      .def("next", &next)
      .def("take", &take)
      .def("open", &open, nb::arg("taken"))
      .def("columns", &columns)
      .def(
          "share_batches",
          [](PyLoader& self, std::uint32_t wanted) {
            return self.parts.get()->loader->share_batches(wanted);
          },
          nb::arg("wanted"))
      .def("state_later",
           [](PyLoader& self) { return PyState{self.parts.get()->loader->state_later()}; })
      .def("state", [](PyLoader& self) { return self.parts.get()->loader->state(); })
      .def("load_state", &load_state, nb::arg("json"))
      .def("seek", &seek, nb::arg("epoch"), nb::arg("batch"))
      .def_prop_ro("batches_left", &batches_left)
      .def_prop_ro("epoch_batches", &epoch_batches)
      .def_prop_ro("lane_readers", &lane_readers)
      .def_prop_ro("epoch", [](PyLoader& self) { return self.parts.get()->loader->epoch(); })
      .def_prop_ro("closed", [](PyLoader& self) { return self.parts.is_closed(); })
      .def("sample_ids", &sample_ids, nb::arg("epoch"), nb::arg("batch_index"))
      .def("metrics", &metrics)
      .def("block_needs", &block_needs, nb::kw_only(), nb::arg("epochs"), nb::arg("first_rank"),
           nb::arg("ranks"))
      .def("trace_reads", &trace_reads_of, nb::kw_only(), nb::arg("ranks"), nb::arg("epochs"),
           nb::arg("memory_bytes"), nb::arg("progress") = nb::none())
      .def("fill_beside", &fill_beside, nb::arg("cache"), nb::kw_only(), nb::arg("rank"),
           nb::arg("node_first"), nb::arg("node_ranks"), nb::arg("epochs_left"),
           nb::arg("memory_bytes"))
      .def("order_spec",
           [](PyLoader& self) { return spec_to_dict(self.parts.get()->loader->order_spec()); })
      .def("close", &close);
}

}  // namespace headrace
