#include "headrace/pack.h"

#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "buffers.h"
#include "dataset.h"
#include "errors.h"
#include "store.h"

namespace headrace {
namespace {

nb::dict pack_stores(PyStore& source, PyStore& target, const std::string& format,
                     std::uint64_t shard_bytes, const std::string& compression,
                     const std::string& hash, std::uint32_t tokens_per_sample,
                     std::uint32_t workers, std::uint64_t memory_bytes, bool is_dry_run,
                     const nb::object& progress) {
  auto from = source.client.get();
  auto to = target.client.get();
  PackOptions options;
  options.format = format;
  options.shard_bytes = shard_bytes;
  options.compression = compression;
  options.hash = hash;
  options.tokens_per_sample = tokens_per_sample;
  options.worker_count = workers;
  options.memory_bytes = memory_bytes;
  options.is_dry_run = is_dry_run;
  ProgressRelay relay(progress);
  if (!progress.is_none()) {
    options.progress = [&relay](std::uint64_t done, std::uint64_t total, std::uint64_t written) {
      relay.store({done, total, written});
    };
  }
  const PackResult result = value_or_raise(run_interruptible(
      [&](std::stop_token stop) {
        return pack(from->store(), to->store(), options, std::move(stop));
      },
      [&relay] { relay.report(); }));
  relay.report();
  nb::dict out;
  out["file_count"] = result.file_count;
  out["sample_count"] = result.sample_count;
  out["shard_count"] = result.shard_count;
  out["read_bytes"] = result.read_bytes;
  out["written_bytes"] = result.written_bytes;
  out["resumed_shard_count"] = result.resumed_shard_count;
  return out;
}

using ColumnRow = std::tuple<std::string, std::string, std::string, std::vector<std::uint64_t>,
                             std::string, std::string>;

struct PyShardBuilder {
  std::unique_ptr<ShardBuilder> builder;
  std::vector<std::string> encodings;  ///< Of the cells.
};

void make_builder(PyShardBuilder* self, const std::string& format,
                  const std::vector<ColumnRow>& columns, std::uint64_t shard_bytes,
                  const std::string& compression, const std::string& hash) {
  ShardFormat spec;
  spec.format = format;
  spec.shard_bytes = shard_bytes;
  spec.compression = compression;
  spec.hash = hash;
  std::vector<std::string> encodings;
  for (const auto& [name, encoding, dtype, shape, target, target_encoding] : columns) {
    PackColumn column;
    column.source.name = name;
    column.source.encoding = encoding;
    column.source.dtype = dtype;
    column.source.shape = shape;
    column.name = target;
    column.encoding = target_encoding;
    encodings.push_back(encoding);
    spec.columns.push_back(std::move(column));
  }
  new (self) PyShardBuilder{value_or_raise(ShardBuilder::create(spec)), std::move(encodings)};
}

/// One value that Python code gave, as a cell: bytes and other buffers as they are, text as UTF-8,
/// whole numbers as 64 bits, None as absent.
class Cell {
 public:
  Cell(nb::handle value, const std::string& encoding) {
    if (value.is_none()) return;
    cell_.present = true;
    PyObject* const object = value.ptr();
    if (PyUnicode_Check(object)) {
      Py_ssize_t length = 0;
      const char* const text = PyUnicode_AsUTF8AndSize(object, &length);
      if (text == nullptr) throw nb::python_error();
      cell_.bytes = std::as_bytes(std::span(text, static_cast<std::size_t>(length)));
    } else if (encoding == "int" && PyLong_Check(object)) {
      number_ = PyLong_AsLongLong(object);
      if (number_ == -1 && PyErr_Occurred() != nullptr) throw nb::python_error();
      cell_.bytes = std::as_bytes(std::span(&number_, 1));
    } else {
      buffer_.emplace(value);
      cell_.bytes = buffer_->bytes();
    }
  }
  Cell(const Cell&) = delete;
  const ColumnBytes& bytes() const noexcept { return cell_; }

 private:
  ColumnBytes cell_;
  long long number_ = 0;
  std::optional<BufferArgument> buffer_;
};

std::uint64_t stage(PyShardBuilder& self, nb::list values, std::uint64_t number) {
  if (values.size() != self.encodings.size()) throw nb::value_error("one value a column, please");
  std::deque<Cell> cells;  // Stays where it is: cells point into themselves.
  std::vector<ColumnBytes> bytes;
  bytes.reserve(values.size());
  for (std::size_t i = 0; i < values.size(); ++i)
    bytes.push_back(cells.emplace_back(values[i], self.encodings[i]).bytes());
  return value_or_raise(self.builder->stage(bytes, number));
}

/// `store`: the dataset's objects, with the memory that this call may use.
void add_samples(PyShardBuilder& self, PyDataset& dataset, PyStore& store, std::uint64_t begin,
                 std::uint64_t end) {
  const auto source = dataset.reader.get()->dataset();
  const auto client = store.client.get();
  raise_if_error(run_interruptible([&](std::stop_token stop) {
    return self.builder->add_samples(*source, client->store(), *client->pool(), begin, end,
                                     CallOptions{.stop = std::move(stop)});
  }));
}

/// (bytes, facts): a numpy array that owns the shard, and what an index says of it.
nb::tuple take(PyShardBuilder& self) {
  auto built = [&] {
    ReleaseGil release;
    return self.builder->take();
  }();
  auto owned = std::make_unique<BuiltShard>(value_or_raise(std::move(built)));
  nb::dict facts;
  facts["samples"] = owned->sample_count;
  facts["raw_bytes"] = owned->raw_bytes;
  facts["bytes"] = owned->bytes.size();
  facts["raw_hash"] = owned->raw_hash;
  facts["zip_hash"] = owned->zip_hash;
  BuiltShard* const shard = owned.release();
  const nb::capsule owner(shard, [](void* p) noexcept { delete static_cast<BuiltShard*>(p); });
  nb::ndarray<nb::numpy, std::uint8_t> bytes(shard->bytes.data(), {shard->bytes.size()}, owner);
  return nb::make_tuple(nb::cast(std::move(bytes)), facts);
}

std::uint64_t count_samples(PyDataset& dataset) {
  const auto source = dataset.reader.get()->dataset();
  ReleaseGil release;
  return count_samples_in_tars(*source);
}

}  // namespace

void bind_pack(nb::module_& m) {
  m.def("pack", &pack_stores, nb::arg("source"), nb::arg("target"), nb::kw_only(),
        nb::arg("format") = "mds", nb::arg("shard_bytes") = std::uint64_t{64} << 20,
        nb::arg("compression") = "", nb::arg("hash") = "", nb::arg("tokens_per_sample") = 0,
        nb::arg("workers") = 0, nb::arg("memory_bytes") = std::uint64_t{256} << 20,
        nb::arg("dry_run") = false, nb::arg("progress") = nb::none());
  m.def("count_samples_in_tars", &count_samples, nb::arg("dataset"));
  nb::class_<PyShardBuilder>(m, "ShardBuilder")
      .def("__init__", &make_builder, nb::arg("format"), nb::arg("columns"), nb::kw_only(),
           nb::arg("shard_bytes") = std::uint64_t{64} << 20, nb::arg("compression") = "",
           nb::arg("hash") = "")
      .def("stage", &stage, nb::arg("values"), nb::arg("number"))
      .def("commit", [](PyShardBuilder& self) { self.builder->commit(); })
      .def("add_samples", &add_samples, nb::arg("dataset"), nb::arg("store"), nb::arg("begin"),
           nb::arg("end"))
      .def("take", &take)
      .def_prop_ro("sample_count",
                   [](const PyShardBuilder& self) { return self.builder->sample_count(); })
      .def_prop_ro("raw_bytes",
                   [](const PyShardBuilder& self) { return self.builder->raw_bytes(); })
      .def_prop_ro("config_json",
                   [](const PyShardBuilder& self) { return self.builder->config_json(); });
}

}  // namespace headrace
