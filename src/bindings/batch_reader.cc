#include "batch_reader.h"

#include <cstring>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "errors.h"

namespace headrace {
namespace {

/// (name, encoding, dtype, shape, bytes of a value or 0), as PyLoader::columns() tells them.
using PyColumn =
    std::tuple<std::string, std::string, std::string, std::vector<std::uint64_t>, std::uint64_t>;

BatchSchema schema_of(const std::vector<PyColumn>& columns) {
  BatchSchema schema;
  schema.reserve(columns.size());
  for (const auto& [name, encoding, dtype, shape, fixed_size_bytes] : columns) {
    schema.push_back({.name = name,
                      .encoding = encoding,
                      .dtype = dtype,
                      .shape = shape,
                      .fixed_size_bytes = fixed_size_bytes});
  }
  return schema;
}

/// Makes batches of one loader in a process that is not the loader's.
class BatchReader {
 public:
  BatchReader(const std::vector<PyColumn>& columns, nb::object batch_type,
              const std::optional<nb::object>& to_arrow)
      : batch_type_(std::move(batch_type)), mapper_(BatchMapper::create(schema_of(columns))) {
    for (const OutputColumn& column : mapper_->schema())
      converters_.emplace_back(column, to_arrow.value_or(nb::object()));
  }

  nb::object open(int fd, nb::bytes place) {
    std::vector<std::int64_t> numbers(place.size() / sizeof(std::int64_t));
    std::memcpy(numbers.data(), place.data(), numbers.size() * sizeof(std::int64_t));
    auto batch = value_or_raise(mapper_->open(fd, numbers));
    return make_batch(converters_, batch_type_,
                      std::make_shared<const BatchOwner>(std::move(batch)));
  }

  void end() { mapper_->end(); }

 private:
  std::vector<ColumnConverter> converters_;
  nb::object batch_type_;
  const std::unique_ptr<BatchMapper> mapper_;
};

}  // namespace

nb::object make_batch(std::span<const ColumnConverter> converters, const nb::object& batch_type,
                      const SharedBatch& owner) {
  const nb::capsule capsule = make_capsule(owner);
  const Batch& batch = owner->batch();
  nb::object out = batch_type();
  const auto columns = batch.columns();
  for (std::size_t c = 0; c < columns.size(); ++c) {
    const nb::object value = converters[c].convert_batch(columns[c], owner, capsule);
    if (PyDict_SetItem(out.ptr(), converters[c].name().ptr(), value.ptr()) != 0)
      throw nb::python_error();
  }
  const std::size_t count = batch.count();
  auto* ids = reinterpret_cast<std::byte*>(const_cast<std::int64_t*>(batch.ids().data()));
  auto* mask = reinterpret_cast<std::byte*>(const_cast<std::uint8_t*>(batch.mask().data()));
  nb::setattr(out, "ids", make_array(ids, {&count, 1}, nb::dtype<std::int64_t>(), capsule));
  nb::setattr(out, "mask", make_array(mask, {&count, 1}, nb::dtype<bool>(), capsule));
  nb::dict replaced;
  for (const ReplacedSample& sample : batch.replaced())
    replaced[nb::int_(sample.slot)] = nb::int_(sample.planned_id);
  nb::setattr(out, "replaced", replaced);
  nb::setattr(out, "epoch", nb::int_(batch.epoch()));
  nb::setattr(out, "index", nb::int_(batch.index()));
  return out;
}

void bind_batch_reader(nb::module_& m) {
  nb::class_<BatchReader>(m, "BatchReader")
      .def(nb::init<const std::vector<PyColumn>&, nb::object, const std::optional<nb::object>&>(),
           nb::arg("columns"), nb::arg("batch_type"), nb::arg("to_arrow").none())
      .def("open", &BatchReader::open, nb::arg("fd"), nb::arg("place"))
      .def("end", &BatchReader::end);
}

}  // namespace headrace
