// Exported by the Arrow C data interface: whoever takes an array calls its `release`, at any time,
// and may keep a child after its parent is gone. So each exported struct has a node of its own,
// which it frees, and all nodes of a column share one Memory, which holds the batch: values are
// the batch's own bytes and are not copied (items of nullable lists are moved together where they
// lie). A batch goes when the last array over it was released.
#include "arrow_column.h"

#include <array>
#include <cstring>
#include <utility>
#include <vector>

#include "headrace/table.h"

namespace headrace {
namespace {

/// Memory of one export, shared by an array and its child: either may outlive the other.
struct Memory {
  SharedBatch owner;
  std::vector<std::uint8_t> validity;       // Bits, least significant first; empty: all are there.
  std::vector<std::int64_t> item_offsets;   // Of lists.
  std::vector<std::uint8_t> item_validity;  // As validity.
  std::int64_t item_null_count = 0;
};

/// The release callback of an array or schema whose private_data is a `Node`.
template <class Node, class Exported>
void release_node(Exported* exported) {
  auto* node = static_cast<Node*>(exported->private_data);
  if (node->child.release != nullptr) node->child.release(&node->child);
  exported->release = nullptr;
  delete node;
}

/// private_data of an exported array.
struct ArrayNode {
  std::shared_ptr<const Memory> memory;
  std::array<const void*, 3> buffers{};
  ArrowArray child{};
  ArrowArray* children[1] = {&child};
};

ArrayNode& fill_array(ArrowArray& out, std::shared_ptr<const Memory> memory, std::size_t length,
                      std::int64_t null_count) {
  auto node = std::make_unique<ArrayNode>();
  node->memory = std::move(memory);
  out = {};
  out.length = static_cast<std::int64_t>(length);
  out.null_count = null_count;
  out.buffers = node->buffers.data();
  out.release = release_node<ArrayNode>;
  out.private_data = node.get();
  return *node.release();
}

/// private_data of an exported schema.
struct SchemaNode {
  ArrowSchema child{};
  ArrowSchema* children[1] = {&child};
};

SchemaNode& fill_schema(ArrowSchema& out, const char* format, const char* name) {
  auto node = std::make_unique<SchemaNode>();
  out = {};
  out.format = format;
  out.name = name;
  out.flags = ARROW_FLAG_NULLABLE;
  out.release = release_node<SchemaNode>;
  out.private_data = node.get();
  return *node.release();
}

/// A PyCapsule that releases what nobody took.
template <class T>
nb::object make_struct_capsule(std::unique_ptr<T> value, const char* name) {
  const auto destroy = [](PyObject* capsule) noexcept {
    auto* held = static_cast<T*>(PyCapsule_GetPointer(capsule, PyCapsule_GetName(capsule)));
    if (held->release != nullptr) held->release(held);
    delete held;
  };
  PyObject* capsule = PyCapsule_New(value.get(), name, destroy);
  if (capsule == nullptr) {
    if (value->release != nullptr) value->release(value.get());
    throw nb::python_error();
  }
  value.release();
  return nb::steal(capsule);
}

std::vector<std::uint8_t> pack_bits(std::span<const std::uint8_t> flags) {
  std::vector<std::uint8_t> bits((flags.size() + 7) / 8);
  for (std::size_t i = 0; i < flags.size(); ++i) {
    if (flags[i] != 0) bits[i / 8] = static_cast<std::uint8_t>(bits[i / 8] | 1U << (i % 8));
  }
  return bits;
}

[[noreturn]] void refuse_size() {
  throw nb::value_error("the length is no multiple of the item size");
}

void add_item_offsets(const BatchColumn& column, std::size_t item_bytes, Memory& memory) {
  memory.item_offsets.reserve(column.offsets.size());
  for (const std::uint64_t offset : column.offsets) {
    // Offsets of a batch count bytes, those of Arrow items.
    if (offset % item_bytes != 0) refuse_size();
    memory.item_offsets.push_back(static_cast<std::int64_t>(offset / item_bytes));
  }
}

/// Items of a value of encoding "nullable_list:": where they begin, and their flags, if any.
struct FlaggedList {
  std::span<const std::byte> flags;
  std::span<const std::byte> items;
};

FlaggedList parse_flagged(std::span<const std::byte> value, std::size_t item_bytes) {
  if (value.empty()) return {};
  const bool has_nulls = value[0] != std::byte{0};
  value = value.subspan(1);
  const std::size_t stride = item_bytes + (has_nulls ? 1 : 0);
  if (value.size() % stride != 0) refuse_size();
  const std::size_t flag_bytes = has_nulls ? value.size() / stride : 0;
  return {value.first(flag_bytes), value.subspan(flag_bytes)};
}

FlaggedList flagged_at(const BatchColumn& column, std::size_t i, std::size_t item_bytes) {
  const bool is_present = column.present.empty() || column.present[i] != 0;
  const auto value =
      column.values.subspan(column.offsets[i], column.offsets[i + 1] - column.offsets[i]);
  if (is_present && value.empty()) throw nb::value_error("its first byte is missing");
  return parse_flagged(value, item_bytes);
}

/// Moves the items of all lists together, to the front of the column.
void flatten_nullable_lists(const BatchColumn& column, std::size_t item_bytes, Memory& memory) {
  const std::size_t count = column.offsets.size() - 1;
  memory.item_offsets.assign(1, 0);
  bool has_nulls = false;
  for (std::size_t i = 0; i < count; ++i) {
    const FlaggedList list = flagged_at(column, i, item_bytes);
    has_nulls = has_nulls || !list.flags.empty();
    memory.item_offsets.push_back(memory.item_offsets.back() +
                                  static_cast<std::int64_t>(list.items.size() / item_bytes));
  }
  std::vector<std::uint8_t> flags;
  if (has_nulls) flags.assign(static_cast<std::size_t>(memory.item_offsets.back()), 1);
  std::byte* to = column.values.data();  // Never ahead of what is read: each list is longer there.
  for (std::size_t i = 0; i < count; ++i) {
    const FlaggedList list = flagged_at(column, i, item_bytes);
    const auto first = static_cast<std::size_t>(memory.item_offsets[i]);
    for (std::size_t k = 0; k < list.flags.size(); ++k) {
      if (list.flags[k] != std::byte{0}) continue;
      flags[first + k] = 0;
      ++memory.item_null_count;
    }
    if (list.items.empty()) continue;
    std::memmove(to, list.items.data(), list.items.size());
    to += list.items.size();
  }
  memory.item_validity = pack_bits(flags);
}

/// Python's ArrowColumn: a column until somebody asks for it, which may happen more than once.
struct ArrowColumn {
  ArrowForm form;
  std::shared_ptr<const Memory> memory;
  std::size_t length = 0;
  std::int64_t null_count = 0;
  BatchColumn column;  // Looks into the batch that `memory` owns.
};

nb::object export_schema(const ArrowColumn& self) {
  auto schema = std::make_unique<ArrowSchema>();
  switch (self.form.kind) {
    case ArrowForm::Kind::kBinary:
      fill_schema(*schema, "Z", "");
      break;
    case ArrowForm::Kind::kText:
      fill_schema(*schema, "U", "");
      break;
    case ArrowForm::Kind::kNumbers:
      fill_schema(*schema, self.form.item_format, "");
      break;
    case ArrowForm::Kind::kNone:  // Never made.
    case ArrowForm::Kind::kList:
    case ArrowForm::Kind::kNullableList: {
      SchemaNode& node = fill_schema(*schema, "+L", "");
      fill_schema(node.child, self.form.item_format, "item");
      schema->n_children = 1;
      schema->children = node.children;
      break;
    }
  }
  return make_struct_capsule(std::move(schema), "arrow_schema");
}

nb::object export_array(const ArrowColumn& self) {
  auto array = std::make_unique<ArrowArray>();
  ArrayNode& node = fill_array(*array, self.memory, self.length, self.null_count);
  const Memory& memory = *self.memory;
  node.buffers[0] = memory.validity.empty() ? nullptr : memory.validity.data();
  const void* values = self.column.values.data();
  if (self.form.kind == ArrowForm::Kind::kNumbers) {
    node.buffers[1] = values;
    array->n_buffers = 2;
  } else if (!memory.item_offsets.empty()) {
    node.buffers[1] = memory.item_offsets.data();
    array->n_buffers = 2;
    const auto items = static_cast<std::size_t>(memory.item_offsets.back());
    ArrayNode& child = fill_array(node.child, self.memory, items, memory.item_null_count);
    child.buffers[0] = memory.item_validity.empty() ? nullptr : memory.item_validity.data();
    child.buffers[1] = values;
    node.child.n_buffers = 2;
    array->n_children = 1;
    array->children = node.children;
  } else {
    // Offsets are u64 below 2^63, which is what Arrow's i64 reads.
    node.buffers[1] = self.column.offsets.data();
    node.buffers[2] = values;
    array->n_buffers = 3;
  }
  return make_struct_capsule(std::move(array), "arrow_array");
}

}  // namespace

const char* number_format(nb::dlpack::dtype dtype) noexcept {
  using enum nb::dlpack::dtype_code;
  struct Row {
    nb::dlpack::dtype_code code;
    unsigned bits;
    const char* format;
  };
  constexpr Row kRows[] = {{Int, 8, "c"},    {UInt, 8, "C"},   {Int, 16, "s"},  {UInt, 16, "S"},
                           {Int, 32, "i"},   {UInt, 32, "I"},  {Int, 64, "l"},  {UInt, 64, "L"},
                           {Float, 16, "e"}, {Float, 32, "f"}, {Float, 64, "g"}};
  for (const Row& row : kRows) {
    if (dtype.code == static_cast<std::uint8_t>(row.code) && dtype.bits == row.bits)
      return row.format;
  }
  return nullptr;
}

nb::object make_arrow_column(const BatchColumn& column, const ArrowForm& form, SharedBatch owner) {
  auto memory = std::make_shared<Memory>();
  ArrowColumn out{.form = form,
                  .memory = memory,
                  .length = owner->batch().count(),
                  .null_count = 0,
                  .column = column};
  memory->owner = std::move(owner);
  if (!column.present.empty()) {
    memory->validity = pack_bits(column.present);
    for (const std::uint8_t flag : column.present) out.null_count += flag == 0 ? 1 : 0;
  }
  if (form.kind == ArrowForm::Kind::kList) add_item_offsets(column, form.item_bytes, *memory);
  if (form.kind == ArrowForm::Kind::kNullableList)
    flatten_nullable_lists(column, form.item_bytes, *memory);
  return nb::cast(std::move(out));
}

void bind_arrow_column(nb::module_& m) {
  nb::class_<ArrowColumn>(m, "ArrowColumn")
      .def(
          "__arrow_c_array__",
          [](const ArrowColumn& self, nb::handle) {
            return nb::make_tuple(export_schema(self), export_array(self));
          },
          nb::arg("requested_schema").none() = nb::none());
}

}  // namespace headrace
