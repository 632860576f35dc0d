// Several datasets as one, packed tokens, and the orders of mixtures.
#include "headrace/mixture.h"

#include <algorithm>
#include <string>

#include "dataset.h"
#include "errors.h"
#include "headrace/router.h"
#include "headrace/views.h"
#include "names.h"
#include "order.h"
#include "order_source.h"
#include "store.h"

namespace headrace {
namespace {

template <class T>
void add_new(std::vector<T>& to, const std::vector<T>& from) {
  for (const T& each : from) {
    if (std::find(to.begin(), to.end(), each) == to.end()) to.push_back(each);
  }
}

/// Reads come into the memory of the store over all of them, and what is kept of them is written
/// from there: so a share of that memory is for what waits to be written.
PyStore route(const std::vector<PyStore*>& stores, std::uint64_t memory_bytes) {
  std::vector<std::unique_ptr<Store>> handles;
  StoreClient::Logs logs;
  StoreClient::Caches caches;
  for (PyStore* store : stores) {
    const auto client = store->client.get();
    handles.push_back(value_or_raise(client->store().new_handle()));
    add_new(logs, client->logs());
    add_new(caches, client->caches());
  }
  auto router = value_or_raise(route_stores(std::move(handles)));
  const std::uint64_t held_bytes =
      caches.empty() ? 0 : StoreClient::cache_buffer_bytes(memory_bytes);
  for (const auto& cache : caches) cache->allow_write_room(held_bytes);
  return PyStore{Guarded<StoreClient>(
      "the store",
      value_or_raise(StoreClient::wrap(std::move(router), memory_bytes - held_bytes,
                                       std::move(logs), std::move(caches), held_bytes)))};
}

/// A view as a dataset that is read through `store`.
PyDataset make_view(PyStore& store, std::shared_ptr<const Dataset> view) {
  std::vector<ColumnConverter> converters;
  for (const Column& column : view->columns()) converters.emplace_back(output_of(column));
  auto reader = std::make_shared<SampleReader>(store.client.get(), std::move(view));
  return PyDataset{Guarded<SampleReader>("the dataset", std::move(reader)), std::move(converters)};
}

ConcatColumns parse_columns(const std::string& name) {
  return by_name<ConcatColumns>("columns", name,
                                {{"equal", ConcatColumns::kEqual},
                                 {"common", ConcatColumns::kCommon},
                                 {"union", ConcatColumns::kUnion}});
}

PyDataset concat(PyStore& store, const std::vector<PyDataset*>& parts, const std::string& columns,
                 std::vector<std::string> wanted, bool only_wanted, bool is_growing) {
  const ConcatOptions options{
      .columns = only_wanted ? ConcatColumns::kWanted : parse_columns(columns),
      .wanted = std::move(wanted),
      .is_growing = is_growing};
  std::vector<std::shared_ptr<const Dataset>> datasets;
  for (PyDataset* part : parts) datasets.push_back(part->reader.get()->dataset());
  return make_view(store, value_or_raise(concat_datasets(std::move(datasets), options)));
}

PyDataset pack(PyStore& store, PyDataset& documents, std::uint32_t length,
               const std::string& column, const std::string& method, std::int64_t pad_token,
               std::uint32_t min_piece, bool drop_partial, const std::string& dtype) {
  PackTokensOptions options;
  options.length = length;
  options.column = column;
  options.method = value_or_raise(parse_pack_method(method));
  options.pad_token = pad_token;
  options.min_piece = min_piece;
  options.drop_partial = drop_partial;
  options.dtype = dtype;
  auto dataset = documents.reader.get()->dataset();
  auto packed = [&] {
    ReleaseGil release;
    return pack_tokens(std::move(dataset), options);
  }();
  // Raises only here, where the GIL is held again.
  return make_view(store, value_or_raise(std::move(packed)));
}

nb::dict pack_report(PyDataset& self) {
  const auto dataset = self.reader.get()->dataset();
  const auto* packed = dynamic_cast<const PackedDataset*>(dataset.get());
  if (packed == nullptr)
    raise(Status(Code::kInvalidArgument, dataset->url() + " is no dataset of packed tokens"));
  const PackReport& report = packed->report();
  nb::dict out;
  out["documents"] = report.documents;
  out["document_tokens"] = report.document_tokens;
  out["sequences"] = report.sequences;
  out["cut_documents"] = report.cut_documents;
  out["padding_tokens"] = report.padding_tokens;
  out["dropped_tokens"] = report.dropped_tokens;
  return out;
}

/// Largest window of a source, as if each of its blocks were the largest.
MixtureInput make_input(const std::string& name, const Dataset& dataset,
                        std::uint32_t window_blocks) {
  MixtureInput input;
  input.name = name;
  input.prints = {dataset.fingerprint(), dataset.version_fingerprint()};
  input.block_samples = block_samples(dataset);
  bool is_compressed = false;
  std::uint64_t largest = 1;
  for (std::uint32_t b = 0; b < dataset.block_count(); ++b) {
    is_compressed = is_compressed || dataset.is_compressed(b);
    const Block block = dataset.block(b);
    largest =
        std::max(largest, block.stored_bytes + (dataset.is_compressed(b) ? block.raw_bytes : 0));
  }
  input.window_blocks = window_blocks > 0 ? window_blocks : is_compressed ? 1 : 2;
  input.window_bytes = largest * input.window_blocks;
  return input;
}

PyOrderSource plan(const std::vector<std::tuple<std::string, PyDataset*>>& sources,
                   const std::vector<std::tuple<std::uint64_t, std::vector<double>>>& schedule,
                   const std::vector<std::uint64_t>& epoch_shares, std::uint64_t epoch_samples,
                   const std::string& batching, std::uint64_t seed, bool shuffle,
                   std::uint64_t global_batch, std::uint64_t memory_bytes,
                   std::uint32_t window_blocks, std::uint32_t groups) {
  MixtureRequest request;
  request.seed = seed;
  request.is_shuffled = shuffle;
  request.batching = value_or_raise(parse_mixture_batching(batching));
  for (const auto& [first, proportions] : schedule)
    request.schedule.push_back({first, proportions});
  request.epoch_shares = epoch_shares;
  request.epoch_samples = epoch_samples;
  request.global_batch = global_batch;
  // A quarter is for batches, as in other loaders.
  request.memory_bytes = memory_bytes - memory_bytes / 4;
  request.groups = groups;
  std::vector<MixtureInput> inputs;
  std::vector<std::string> names;
  std::vector<MixturePrints> prints;
  for (const auto& [name, dataset] : sources) {
    inputs.push_back(make_input(name, *dataset->reader.get()->dataset(), window_blocks));
    names.push_back(name);
    prints.push_back(inputs.back().prints);
  }
  MixtureSpec spec = value_or_raise(plan_mixture(request, inputs));
  return {
      value_or_raise(MixtureSource::create(std::move(spec), std::move(names), std::move(prints)))};
}

const MixtureSource& mixture_of(const PyOrderSource& self) {
  const auto* mixture = dynamic_cast<const MixtureSource*>(self.source.get());
  if (mixture == nullptr) raise(Status(Code::kInvalidArgument, "this order is no mixture"));
  return *mixture;
}

nb::dict describe(const PyOrderSource& self) {
  const MixtureSource& mixture = mixture_of(self);
  const MixtureSpec& spec = mixture.mixture();
  nb::dict out;
  out["batching"] = mixture_batching_name(spec.batching);
  out["global_batch"] = spec.batch;
  out["samples_per_epoch"] = spec.epoch_samples;
  out["groups"] = spec.groups;
  nb::list sources;
  for (std::size_t i = 0; i < spec.parts.size(); ++i) {
    nb::dict source;
    source["name"] = mixture.names()[i];
    source["lanes"] = spec.parts[i].order.lane_count;
    source["window_blocks"] = spec.parts[i].order.window_blocks;
    sources.append(source);
  }
  out["sources"] = sources;
  nb::list changes;
  for (const MixtureChange& change : spec.changes) {
    nb::list weights;
    for (std::size_t i = 0; i < spec.parts.size(); ++i)
      weights.append(i < change.weights.size() ? change.weights[i] / double{kMixtureWeightSum} : 0);
    changes.append(nb::make_tuple(change.first_sample / spec.batch, weights));
  }
  out["schedule"] = changes;
  out["epoch_shares"] = spec.epoch_shares;
  return out;
}

}  // namespace

void bind_mixture(nb::module_& m) {
  nb::class_<PyOrderSource>(m, "OrderSource")
      .def("describe", &describe)
      .def("spec", [](PyOrderSource& self) { return spec_to_dict(self.source->spec()); })
      .def(
          "counts",
          [](PyOrderSource& self, std::uint64_t first, std::uint64_t count) {
            return mixture_of(self).schedule().counts(first, count);
          },
          nb::arg("first"), nb::arg("count"))
      .def(
          "boundary",
          [](PyOrderSource& self, std::uint64_t sample) {
            return mixture_of(self).boundary(sample);
          },
          nb::arg("sample"))
      .def(
          "changed",
          [](PyOrderSource& self, std::uint64_t sample, const std::vector<double>& proportions) {
            return PyOrderSource{value_or_raise(mixture_of(self).changed(sample, proportions))};
          },
          nb::arg("sample"), nb::arg("proportions"))
      .def(
          "restored",
          [](PyOrderSource& self, const std::string& state) {
            auto source = value_or_raise(self.source->restored(self.source->spec(), state));
            return PyOrderSource{source ? std::move(source) : self.source};
          },
          nb::arg("state"));
  m.def("plan_mixture", &plan, nb::arg("sources"), nb::kw_only(), nb::arg("schedule"),
        nb::arg("epoch_shares"), nb::arg("epoch_samples"), nb::arg("batching"), nb::arg("seed"),
        nb::arg("shuffle"), nb::arg("global_batch"), nb::arg("memory_bytes"),
        nb::arg("window_blocks"), nb::arg("groups"));
  m.def("concat_datasets", &concat, nb::arg("store"), nb::arg("datasets"), nb::arg("columns"),
        nb::arg("wanted"), nb::arg("only_wanted"), nb::arg("is_growing"));
  m.def("pack_tokens", &pack, nb::arg("store"), nb::arg("documents"), nb::kw_only(),
        nb::arg("length"), nb::arg("column"), nb::arg("method"), nb::arg("pad_token"),
        nb::arg("min_piece"), nb::arg("drop_partial"), nb::arg("dtype"));
  m.def("pack_report", &pack_report, nb::arg("dataset"));
  m.def("route_stores", &route, nb::arg("stores"), nb::arg("memory_bytes"));
}

}  // namespace headrace
