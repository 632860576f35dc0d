// Columns of an unpacked block, laid out as Arrow has them. Each batch's rows are copied into the
// block's arena once (TableBuilder::copy()), because the unpacker's arrays go when it returns; a
// cell is then a pointer into the copy. What Arrow stores otherwise than it is delivered (bits for
// booleans, offsets of 32 or 64 bits) is put right where a cell is cut; lists with nulls by the
// cell's writer, when the batch is laid out.
//
// A slice of an array shares its buffers with the whole, so only the bytes of its rows are copied.
// Bits cannot be cut between bytes: copies begin at the byte that holds the first row's bit, and
// `offset` says where in it. Offsets stay as they are; `first_offset` is what is to be taken off.
#include "shard/formats/table/unpacked_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstring>

#include "base/check.h"

namespace headrace::detail {
namespace {

using View = UnpackedTable::View;
using Kind = View::Kind;

Status mismatch(std::string_view column, std::string_view what) {
  return Status(Code::kCorrupt, fmt::format("column '{}': {}", column, what));
}

bool bit_at(const std::uint8_t* bits, std::int64_t index) noexcept {
  return (bits[index >> 3] >> (index & 7) & 1) != 0;
}

// Bytes of a value of a fixed width; 0 for other formats. Letters: "Format strings" of the Arrow C
// data interface.
std::uint32_t width_of(std::string_view format) {
  if (format.starts_with("w:")) {
    std::uint32_t width = 0;
    std::from_chars(format.data() + 2, format.data() + format.size(), width);
    return width;
  }
  if (format.starts_with("ts") || format.starts_with("tD") || format == "tdm" || format == "ttu" ||
      format == "ttn") {
    return 8;
  }
  if (format == "tdD" || format == "tts" || format == "ttm") return 4;
  if (format.size() != 1) return 0;
  switch (format[0]) {
    case 'c':
    case 'C':
      return 1;
    case 's':
    case 'S':
    case 'e':
      return 2;
    case 'i':
    case 'I':
    case 'f':
      return 4;
    case 'l':
    case 'L':
    case 'g':
      return 8;
    default:
      return 0;
  }
}

template <class T>
const T* buffer(const ArrowArray& array, std::int64_t index) noexcept {
  return array.n_buffers > index ? static_cast<const T*>(array.buffers[index]) : nullptr;
}

const std::uint8_t* validity_of(const ArrowArray& array) noexcept {
  return array.null_count == 0 ? nullptr : buffer<std::uint8_t>(array, 0);
}

// A producer may leave the number of nulls open (-1).
bool has_nulls(const ArrowArray& array) noexcept {
  const std::uint8_t* bits = validity_of(array);
  if (bits == nullptr || array.null_count > 0) return bits != nullptr;
  for (std::int64_t i = 0; i < array.length; ++i) {
    if (!bit_at(bits, array.offset + i)) return true;
  }
  return false;
}

std::int64_t offset_at(const View& view, std::int64_t index, bool is_wide) noexcept {
  return is_wide ? static_cast<const std::int64_t*>(view.offsets)[index]
                 : static_cast<const std::int32_t*>(view.offsets)[index];
}

// Items of a list: numbers of one width.
Status view_items(const ArrowSchema& schema, const ArrowArray& array, const Column& column,
                  View& view) {
  if (schema.n_children != 1 || array.n_children != 1)
    return mismatch(column.name, "a list without items");
  const ArrowArray& items = *array.children[0];
  view.width_bytes = width_of(schema.children[0]->format);
  if (view.width_bytes == 0 || view.last_offset > items.length)
    return mismatch(column.name, "list items do not fit the list");
  const auto* values = buffer<std::byte>(items, 1);
  if (values != nullptr) view.values = values + items.offset * view.width_bytes;
  view.item_validity = has_nulls(items) ? validity_of(items) : nullptr;
  view.item_offset = items.offset;
  view.is_flagged_list = column.encoding.starts_with("nullable_list:");
  if (column.fixed_size_bytes != 0)
    view.fixed_items = static_cast<std::uint32_t>(column.fixed_size_bytes / view.width_bytes);
  if (view.item_validity != nullptr && !view.is_flagged_list) {
    return Status(Code::kUnsupported,
                  fmt::format("column '{}': nulls inside of its arrays ({}); leave it out with "
                              "columns=",
                              column.name, column.encoding));
  }
  return Status();
}

Result<View> make_view(const ArrowSchema& schema, const ArrowArray& array, const Column& column,
                       std::int64_t first, std::int64_t count) {
  const std::string_view format = schema.format;
  View view;
  if (array.length < count || first < 0 || array.length - count < first)
    return mismatch(column.name, "fewer values than rows");
  view.offset = array.offset + first;
  if (format == "n") return view;
  view.validity = validity_of(array);
  if (format == "b") {
    view.kind = Kind::kBool;
    view.width_bytes = 1;
    view.values = buffer<std::byte>(array, 1);
    if (view.values == nullptr && count > 0) return mismatch(column.name, "no values");
    return view;
  }
  const bool is_binary = format == "u" || format == "z" || format == "U" || format == "Z";
  if (is_binary || format == "+l" || format == "+L") {
    const bool is_wide = format == "U" || format == "Z" || format == "+L";
    view.kind = is_binary ? (is_wide ? Kind::kBinary64 : Kind::kBinary32)
                          : (is_wide ? Kind::kList64 : Kind::kList32);
    view.offsets = buffer<void>(array, 1);
    if (view.offsets == nullptr && count > 0) return mismatch(column.name, "no offsets");
    if (count > 0) view.last_offset = offset_at(view, view.offset + count, is_wide);
    if (!is_binary) {
      HEADRACE_TRY(view_items(schema, array, column, view));
    } else {
      view.values = buffer<std::byte>(array, 2);
      if (view.values == nullptr && view.last_offset > 0) return mismatch(column.name, "no values");
    }
    return view;
  }
  view.kind = Kind::kFixed;
  view.width_bytes = width_of(format);
  view.values = buffer<std::byte>(array, 1);
  if (view.width_bytes == 0 || view.width_bytes != column.fixed_size_bytes) {
    return mismatch(column.name, fmt::format("unpacked as '{}', the index says {} of {} bytes",
                                             format, column.encoding, column.fixed_size_bytes));
  }
  if (view.values == nullptr && count > 0) return mismatch(column.name, "no values");
  return view;
}

// Encoding "nullable_list:DTYPE": a byte 0 and the items, or a byte 1, a byte for each item that
// says whether it is there, and the items. Which one follows from the list alone: the same list is
// the same value, and of the same type in Python, whatever lies in the rows around it.
void write_list(const ColumnBytes& cell, std::span<std::byte> out) noexcept {
  out[0] = std::byte{0};
  if (!cell.bytes.empty()) std::memcpy(out.data() + 1, cell.bytes.data(), cell.bytes.size());
}

void write_masked_list(const ColumnBytes& cell, std::span<std::byte> out) noexcept {
  const View& view = *static_cast<const View*>(cell.context);
  const std::size_t count = cell.bytes.size() / view.width_bytes;
  out[0] = std::byte{1};
  const auto first = (cell.bytes.data() - view.values) / view.width_bytes + view.item_offset;
  for (std::size_t i = 0; i < count; ++i) {
    out[1 + i] = std::byte{bit_at(view.item_validity, first + static_cast<std::int64_t>(i))
                               ? std::uint8_t{1}
                               : std::uint8_t{0}};
  }
  std::memcpy(out.data() + 1 + count, cell.bytes.data(), cell.bytes.size());
}

constexpr std::byte kFalseTrue[2] = {std::byte{0}, std::byte{1}};

bool has_null_items(const View& view, std::int64_t begin, std::int64_t end) noexcept {
  if (view.item_validity == nullptr) return false;
  for (std::int64_t i = begin; i < end; ++i) {
    if (!bit_at(view.item_validity, view.item_offset + i - view.first_offset)) return true;
  }
  return false;
}

// False when the offsets of the row do not fit.
bool cut_list(const View& view, std::int64_t begin, std::int64_t end, ColumnBytes& out) {
  const auto count = static_cast<std::uint64_t>(end - begin);
  if (count > 0)
    out.bytes = {view.values + (begin - view.first_offset) * view.width_bytes,
                 count * view.width_bytes};
  if (!view.is_flagged_list) return view.fixed_items == 0 || count == view.fixed_items;
  const bool is_masked = has_null_items(view, begin, end);
  out.value_bytes = 1 + out.bytes.size() + (is_masked ? count : 0);
  out.writer = is_masked ? write_masked_list : write_list;
  out.context = &view;
  return true;
}

bool cut_cell(const View& view, std::int64_t row, ColumnBytes& out) {
  const std::int64_t at = view.offset + row;
  out = ColumnBytes{};
  if (view.kind == Kind::kNull || (view.validity != nullptr && !bit_at(view.validity, at)))
    return true;
  out.present = true;
  switch (view.kind) {
    case Kind::kFixed:
      out.bytes = {view.values + at * view.width_bytes, view.width_bytes};
      return true;
    case Kind::kBool: {
      const bool value = bit_at(reinterpret_cast<const std::uint8_t*>(view.values), at);
      out.bytes = {kFalseTrue + (value ? 1 : 0), 1};
      return true;
    }
    default:
      break;
  }
  const bool is_wide = view.kind == Kind::kBinary64 || view.kind == Kind::kList64;
  const std::int64_t begin = offset_at(view, at, is_wide);
  const std::int64_t end = offset_at(view, at + 1, is_wide);
  if (begin < view.first_offset || begin > end || end > view.last_offset) return false;
  if (view.kind == Kind::kList32 || view.kind == Kind::kList64)
    return cut_list(view, begin, end, out);
  if (begin < end)
    out.bytes = {view.values + (begin - view.first_offset), static_cast<std::size_t>(end - begin)};
  return true;
}

std::size_t bit_bytes(std::int64_t count) noexcept {
  return static_cast<std::size_t>((count + 7) / 8);
}

}  // namespace

TableBuilder::TableBuilder(std::span<const Column> columns, std::vector<ConstantCell> constants,
                           SlabArena& arena)
    : columns_(columns),
      unpacked_count_(columns.size() - std::min(columns.size(), constants.size())),
      arena_(arena),
      table_(std::make_shared<UnpackedTable>()) {
  table_->constants_ = std::move(constants);
}

Result<const std::byte*> TableBuilder::copy(const void* from, std::size_t size_bytes) {
  if (from == nullptr || size_bytes == 0) return static_cast<const std::byte*>(nullptr);
  HEADRACE_TRY_ASSIGN(const std::span<std::byte> to, arena_.take(size_bytes));
  std::memcpy(to.data(), from, size_bytes);
  return static_cast<const std::byte*>(to.data());
}

// Only the rows of the view, from the byte of the bitmaps on in which they begin.
Status TableBuilder::copy(View& view, std::int64_t row_count) {
  if (view.kind == Kind::kNull) return Status();
  const std::int64_t begin = view.offset / 8 * 8;
  const std::int64_t count = view.offset - begin + row_count;
  view.offset -= begin;
  if (view.validity != nullptr) {
    HEADRACE_TRY_ASSIGN(const std::byte* bits, copy(view.validity + begin / 8, bit_bytes(count)));
    view.validity = reinterpret_cast<const std::uint8_t*>(bits);
  }
  if (view.kind == Kind::kBool) {
    HEADRACE_TRY_ASSIGN(view.values, copy(view.values + begin / 8, bit_bytes(count)));
    return Status();
  }
  if (view.kind == Kind::kFixed) {
    const auto width = static_cast<std::int64_t>(view.width_bytes);
    HEADRACE_TRY_ASSIGN(view.values,
                        copy(view.values + begin * width, static_cast<std::size_t>(count * width)));
    return Status();
  }
  const bool is_wide = view.kind == Kind::kBinary64 || view.kind == Kind::kList64;
  const std::size_t offset_bytes = is_wide ? sizeof(std::int64_t) : sizeof(std::int32_t);
  if (row_count == 0) return Status();
  view.first_offset = offset_at(view, begin + view.offset, is_wide);
  // Rows whose offsets do not fit what is copied are found when they are cut.
  if (view.first_offset < 0 || view.first_offset > view.last_offset)
    view.first_offset = view.last_offset = 0;
  HEADRACE_TRY_ASSIGN(view.offsets, copy(static_cast<const std::byte*>(view.offsets) +
                                             static_cast<std::size_t>(begin) * offset_bytes,
                                         static_cast<std::size_t>(count + 1) * offset_bytes));
  const bool is_list = view.kind == Kind::kList32 || view.kind == Kind::kList64;
  const std::int64_t width = is_list ? static_cast<std::int64_t>(view.width_bytes) : 1;
  const std::int64_t items = view.last_offset - view.first_offset;
  if (view.values != nullptr) {
    HEADRACE_TRY_ASSIGN(view.values, copy(view.values + view.first_offset * width,
                                          static_cast<std::size_t>(items * width)));
  }
  if (view.item_validity != nullptr && items > 0) {
    const std::int64_t first_bit = view.item_offset + view.first_offset;
    view.item_offset = first_bit % 8;
    HEADRACE_TRY_ASSIGN(const std::byte* bits, copy(view.item_validity + first_bit / 8,
                                                    bit_bytes(view.item_offset + items)));
    view.item_validity = reinterpret_cast<const std::uint8_t*>(bits);
  }
  return Status();
}

Status TableBuilder::take(std::size_t first_column, const ArrowSchema& schema,
                          const ArrowArray& array) {
  if (schema.n_children < 0 || array.n_children != schema.n_children || array.length < 0 ||
      first_column > unpacked_count_ ||
      static_cast<std::size_t>(schema.n_children) > unpacked_count_ - first_column) {
    return Status(Code::kCorrupt, fmt::format("unpacked {} columns from {} on, the index says {}",
                                              schema.n_children, first_column, unpacked_count_));
  }
  const auto column_count = static_cast<std::size_t>(schema.n_children);
  auto& groups = table_->groups_;
  if (groups.empty() || groups.back().first_column != first_column ||
      groups.back().column_count != column_count) {
    UnpackedTable::Group& added = groups.emplace_back();
    added.first_column = first_column;
    added.column_count = column_count;
  }
  UnpackedTable::Group& group = groups.back();
  if (array.length == 0) return Status();
  UnpackedTable::Batch batch;
  batch.first_row = group.row_count;
  for (std::size_t c = 0; c < column_count; ++c) {
    const Column& column = columns_[first_column + c];
    HEADRACE_TRY_ASSIGN(View view, make_view(*schema.children[c], *array.children[c], column,
                                             array.offset, array.length));
    HEADRACE_TRY(copy(view, array.length));
    batch.views.push_back(view);
  }
  group.row_count += static_cast<std::uint64_t>(array.length);
  group.batches.push_back(std::move(batch));
  return Status();
}

Result<std::shared_ptr<const UnpackedTable>> TableBuilder::finish() {
  std::size_t next = 0;
  const auto& groups = table_->groups_;
  if (!groups.empty()) table_->row_count_ = groups.front().row_count;
  for (const UnpackedTable::Group& group : groups) {
    if (group.first_column != next || group.row_count != table_->row_count_)
      return Status(Code::kCorrupt, "unpacked columns of different lengths");
    next += group.column_count;
  }
  if (next != unpacked_count_) {
    return Status(Code::kCorrupt,
                  fmt::format("unpacked {} columns, the index says {}", next, unpacked_count_));
  }
  return std::shared_ptr<const UnpackedTable>(std::move(table_));
}

const UnpackedTable::Batch& UnpackedTable::batch_of(const Group& group,
                                                    std::uint64_t row) noexcept {
  const auto& batches = group.batches;
  if (batches.size() == 1) return batches.front();
  const auto after =
      std::upper_bound(batches.begin(), batches.end(), row,
                       [](std::uint64_t r, const Batch& b) { return r < b.first_row; });
  return *(after - 1);
}

Status UnpackedTable::cut(std::uint64_t row, std::span<ColumnBytes> out) const {
  HEADRACE_DCHECK(row < row_count_);
  std::size_t c = 0;
  for (const Group& group : groups_) {
    const Batch& batch = batch_of(group, row);
    const auto at = static_cast<std::int64_t>(row - batch.first_row);
    for (const View& view : batch.views) {
      if (!cut_cell(view, at, out[c])) {
        return Status(Code::kCorrupt,
                      fmt::format("column {}: its value does not fit the column", c));
      }
      ++c;
    }
  }
  HEADRACE_DCHECK(out.size() == c + constants_.size());
  for (const ConstantCell& constant : constants_) {
    out[c] = ColumnBytes{};
    out[c].present = constant.present;
    if (constant.present) out[c].bytes = std::as_bytes(std::span(constant.value));
    ++c;
  }
  return Status();
}

}  // namespace headrace::detail
