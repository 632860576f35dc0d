#include "shard/table/decoded_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "base/check.h"

namespace headrace::detail {
namespace {

using View = DecodedTable::View;
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
  view.is_masked_list = view.item_validity != nullptr;
  view.is_flagged_list = column.encoding.starts_with("nullable_list:");
  if (column.fixed_size_bytes != 0)
    view.fixed_items = static_cast<std::uint32_t>(column.fixed_size_bytes / view.width_bytes);
  if (view.is_masked_list && !view.is_flagged_list) {
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
    return mismatch(column.name, fmt::format("decoded as '{}', the index says {} of {} bytes",
                                             format, column.encoding, column.fixed_size_bytes));
  }
  if (view.values == nullptr && count > 0) return mismatch(column.name, "no values");
  return view;
}

// Encoding "nullable_list:DTYPE": a byte 0 and the items, or a byte 1, a byte for each item that
// says whether it is there, and the items.
void write_list(const ColumnBytes& cell, std::span<std::byte> out) noexcept {
  out[0] = std::byte{0};
  if (!cell.bytes.empty()) std::memcpy(out.data() + 1, cell.bytes.data(), cell.bytes.size());
}

void write_masked_list(const ColumnBytes& cell, std::span<std::byte> out) noexcept {
  const View& view = *static_cast<const View*>(cell.context);
  const std::size_t count = cell.bytes.size() / view.width_bytes;
  out[0] = std::byte{1};
  if (count == 0) return;
  const auto first = (cell.bytes.data() - view.values) / view.width_bytes + view.item_offset;
  for (std::size_t i = 0; i < count; ++i) {
    out[1 + i] = std::byte{bit_at(view.item_validity, first + static_cast<std::int64_t>(i))
                               ? std::uint8_t{1}
                               : std::uint8_t{0}};
  }
  std::memcpy(out.data() + 1 + count, cell.bytes.data(), cell.bytes.size());
}

constexpr std::byte kFalseTrue[2] = {std::byte{0}, std::byte{1}};

// False when the offsets of the row do not fit.
bool cut_list(const View& view, std::int64_t begin, std::int64_t end, ColumnBytes& out) {
  const auto count = static_cast<std::uint64_t>(end - begin);
  out.bytes = {view.values + begin * view.width_bytes, count * view.width_bytes};
  if (!view.is_flagged_list) return view.fixed_items == 0 || count == view.fixed_items;
  out.value_bytes = 1 + out.bytes.size() + (view.is_masked_list ? count : 0);
  out.writer = view.is_masked_list ? write_masked_list : write_list;
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
  if (begin < 0 || begin > end || end > view.last_offset) return false;
  if (view.kind == Kind::kList32 || view.kind == Kind::kList64)
    return cut_list(view, begin, end, out);
  out.bytes = {view.values + begin, static_cast<std::size_t>(end - begin)};
  return true;
}

Status stream_error(ArrowArrayStream& stream, int error) {
  const char* text = stream.get_last_error(&stream);
  return Status(Code::kCorrupt,
                fmt::format("decoding: {} (errno {})", text != nullptr ? text : "failed", error));
}

}  // namespace

Result<std::shared_ptr<const DecodedTable>> DecodedTable::from_stream(
    ArrowOwned<ArrowArrayStream> stream, std::span<const Column> columns,
    std::vector<ConstantCell> constants) {
  ArrowOwned<ArrowSchema> schema;
  if (const int error = stream->get_schema(stream.get(), schema.out()); error != 0)
    return stream_error(*stream.get(), error);
  const std::size_t count = columns.size() - std::min(columns.size(), constants.size());
  if (schema->n_children < 0 || static_cast<std::size_t>(schema->n_children) != count)
    return Status(Code::kCorrupt,
                  fmt::format("decoded {} columns, the index says {}", schema->n_children, count));
  auto table = std::make_shared<DecodedTable>();
  table->constants_ = std::move(constants);
  while (true) {
    Batch batch;
    if (const int error = stream->get_next(stream.get(), batch.array.out()); error != 0)
      return stream_error(*stream.get(), error);
    if (!batch.array) break;
    const ArrowArray& rows = *batch.array;
    if (rows.length < 0 || rows.n_children != schema->n_children)
      return Status(Code::kCorrupt, "decoded a batch of other columns than its schema");
    if (rows.length == 0) continue;
    for (std::size_t c = 0; c < count; ++c) {
      HEADRACE_TRY_ASSIGN(View view, make_view(*schema->children[c], *rows.children[c], columns[c],
                                               rows.offset, rows.length));
      batch.views.push_back(view);
    }
    batch.first_row = table->row_count_;
    table->row_count_ += static_cast<std::uint64_t>(rows.length);
    table->batches_.push_back(std::move(batch));
  }
  return std::shared_ptr<const DecodedTable>(std::move(table));
}

const DecodedTable::Batch& DecodedTable::batch_of(std::uint64_t row) const noexcept {
  if (batches_.size() == 1) return batches_.front();
  const auto after =
      std::upper_bound(batches_.begin(), batches_.end(), row,
                       [](std::uint64_t r, const Batch& b) { return r < b.first_row; });
  return *(after - 1);
}

Status DecodedTable::cut(std::uint64_t row, std::span<ColumnBytes> out) const {
  HEADRACE_DCHECK(row < row_count_);
  const Batch& batch = batch_of(row);
  HEADRACE_DCHECK(out.size() == batch.views.size() + constants_.size());
  const auto at = static_cast<std::int64_t>(row - batch.first_row);
  std::size_t c = 0;
  for (; c < batch.views.size(); ++c) {
    if (!cut_cell(batch.views[c], at, out[c]))
      return Status(Code::kCorrupt, fmt::format("column {}: its value does not fit the column", c));
  }
  for (const ConstantCell& constant : constants_) {
    out[c] = ColumnBytes{};
    out[c].present = constant.present;
    if (constant.present) out[c].bytes = std::as_bytes(std::span(constant.value));
    ++c;
  }
  return Status();
}

}  // namespace headrace::detail
